package bus

import (
	"encoding/hex"
	"math/bits"
	"strconv"
	"strings"
)

// The subjects. Their region, pool, host and user are one token each; a gateway is a random ID of its process, so
// that the processes of a user are told apart.

// Groups of which one member gets a message.
const (
	FreeGroup    = "free"    // hosts that have room now
	WantGroup    = "want"    // hosts that have the pool
	WaitingGroup = "waiting" // gateways with requests that wait
)

func subject(tokens ...string) string {
	return "btools.v1." + strings.ReplaceAll(strings.Join(tokens, "."), All, "*")
}

// Any is the rank of any host.
const Any = "any"

// Ranks are the ranks by which hosts can be asked in an order. Each is called after the smallest number at the end of
// the names of its hosts.
var Ranks = []string{"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r16", "r32", "r64", "r128", "r256", "r512"}

// RankOf returns the rank of a host: the last one if its name does not end with a number.
func RankOf(host string) string {
	digits := host[len(strings.TrimRight(host, "0123456789")):]
	n, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case err != nil || n >= 512:
		return Ranks[len(Ranks)-1]
	case n < 8:
		return Ranks[n]
	}
	return Ranks[4+bits.Len64(n)]
}

// FreeSubject asks one host with room, of a rank or Any.
func FreeSubject(region, pool, rank, user, gateway string) string {
	return subject(Token(region), "free", Token(pool), rank, user, gateway)
}

// WantSubject asks a random host for a place in its queue.
func WantSubject(region, pool, user, gateway string) string {
	return subject(Token(region), "want", Token(pool), user, gateway)
}

// HostSubject asks one host: want, cancel or drain.
func HostSubject(region, host, verb, user, gateway string) string {
	return subject(Token(region), "host", Token(host), verb, user, gateway)
}

// isDrain reports whether a subject asks a host to drain.
func isDrain(subject string) bool {
	tokens := strings.Split(subject, ".") // btools.v1.REGION.host.HOST.VERB.USER.GW
	return len(tokens) == 8 && tokens[3] == "host" && tokens[5] == "drain"
}

// HostSubjects is all messages to one host.
func HostSubjects(region, host string) string {
	return subject(Token(region), "host", Token(host), ">")
}

// OfferSubject offers a slot to a gateway.
func OfferSubject(region, user, gateway, host string) string {
	return subject(Token(region), "gw", user, gateway, "offer", Token(host))
}

// OpenSubject offers a slot to one gateway that waits.
func OpenSubject(region, pool, host string) string {
	return subject(Token(region), "open", Token(pool), Token(host))
}

// LoadSubject tells the load of a host.
func LoadSubject(region, host string) string { return subject(Token(region), "load", Token(host)) }

// All listens to any value of a token. No name is the same.
const All = "\x00"

// Token returns a name as one token of a subject: letters, digits, - and _ stay, and other bytes become =XX.
func Token(name string) string {
	if name == All {
		return All
	}
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
			b.WriteByte(c)
		default:
			b.WriteString("=" + hex.EncodeToString([]byte{c}))
		}
	}
	return b.String()
}

// Name returns the name that Token has made a token of.
func Name(token string) string {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		if token[i] == '=' && i+2 < len(token) {
			if c, err := hex.DecodeString(token[i+1 : i+3]); err == nil {
				b.WriteByte(c[0])
				i += 2
				continue
			}
		}
		b.WriteByte(token[i])
	}
	return b.String()
}
