// Jwt makes users of a nats-server for hosts and gateways of bpool, as JWT: see btools-cluster(7).
//
//	go run ./jwt DIR host vm1 …      the file DIR/vm1.creds, and DIR/server.conf for the server; so for others:
//	go run ./jwt DIR gateway ci
//	go run ./jwt DIR admin ops
//	go run ./jwt DIR revoke ci       DIR/server.conf in which all that ci has had is revoked
//	VALID=24h go run ./jwt …         credentials that expire
//
// A user has the permissions of permissions.conf, with its own name. A scoped signing key with {{name()}} cannot give
// them: the server drops what has a queue from such a template (2.9.10 and 2.15.2 do).
// The keys in DIR/keys are as good as all users: keep them where no server is.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nkeys"
)

// roles are the blocks of permissions.conf, each for one name, and that name.
var roles = map[string][2]string{"host": {"host_vm1", "vm1"}, "gateway": {"gateway_ci", "ci"},
	"admin": {"admin_ops", "ops"}}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "jwt:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 || args[1] != "revoke" && roles[args[1]][0] == "" {
		return errors.New("usage: go run ./jwt DIR host|gateway|admin|revoke NAME …")
	}
	dir, verb, names := args[0], args[1], args[2:]
	if err := os.MkdirAll(filepath.Join(dir, "keys"), 0o700); err != nil {
		return err
	}
	account, err := accountOf(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.ContainsAny(name, ".*> \t") {
			return fmt.Errorf("%q is not one token of a subject: write a dot as =2e", name)
		}
		if verb == "revoke" {
			err = revoke(dir, account, name)
		} else {
			err = issue(dir, account, verb, name)
		}
		if err != nil {
			return err
		}
	}
	return writeServer(dir, account)
}

// key returns a key of a file, which is made if there is none.
func key(dir, name string, kind nkeys.PrefixByte) (nkeys.KeyPair, string, error) {
	file := filepath.Join(dir, "keys", name+".nk")
	seed, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		var pair nkeys.KeyPair
		if pair, err = nkeys.CreatePair(kind); err == nil {
			if seed, err = pair.Seed(); err == nil {
				err = os.WriteFile(file, seed, 0o600)
			}
		}
	}
	if err != nil {
		return nil, "", err
	}
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	public, err := pair.PublicKey()
	return pair, public, err
}

// accountOf returns the account, with the revocations that it has had.
func accountOf(dir string) (*jwt.AccountClaims, error) {
	_, id, err := key(dir, "account", nkeys.PrefixByteAccount)
	if err != nil {
		return nil, err
	}
	a := jwt.NewAccountClaims(id)
	a.Name = "btools"
	old, err := os.ReadFile(filepath.Join(dir, "account.jwt"))
	if err == nil {
		before, err := jwt.DecodeAccountClaims(string(old))
		if err != nil {
			return nil, err
		}
		a.Revocations = before.Revocations
	}
	_, signer, err := key(dir, "signer", nkeys.PrefixByteAccount)
	a.SigningKeys.Add(signer)
	return a, err
}

// rightsOf returns what a user may do.
func rightsOf(role, name string) (rights jwt.Permissions, err error) {
	all, err := conf.ParseFile("permissions.conf")
	if err != nil {
		return rights, err
	}
	block, _ := all[roles[role][0]].(map[string]any)
	subjects := func(kind string) (list jwt.StringList) {
		items, _ := block[kind].([]any)
		for _, s := range items {
			list.Add(strings.ReplaceAll(s.(string), "."+roles[role][1], "."+name))
		}
		return list
	}
	rights.Pub.Allow, rights.Sub.Allow = subjects("publish"), subjects("subscribe")
	rights.Resp = &jwt.ResponsePermission{MaxMsgs: 1, Expires: 5 * time.Second}
	return rights, nil
}

// issue writes the credentials of a user.
func issue(dir string, a *jwt.AccountClaims, role, name string) error {
	signer, _, err := key(dir, "signer", nkeys.PrefixByteAccount)
	if err != nil {
		return err
	}
	pair, err := nkeys.CreateUser()
	if err != nil {
		return err
	}
	id, err := pair.PublicKey()
	if err != nil {
		return err
	}
	u := jwt.NewUserClaims(id)
	u.Name, u.IssuerAccount = name, a.Subject
	if u.Permissions, err = rightsOf(role, name); err != nil {
		return err
	}
	if valid := os.Getenv("VALID"); valid != "" {
		d, err := time.ParseDuration(valid)
		if err != nil {
			return err
		}
		u.Expires = time.Now().Add(d).Unix()
	}
	token, err := u.Encode(signer)
	if err != nil {
		return err
	}
	seed, err := pair.Seed()
	if err != nil {
		return err
	}
	creds, err := jwt.FormatUserConfig(token, seed)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".creds"), creds, 0o600)
}

// revoke revokes what a user has had so far.
func revoke(dir string, a *jwt.AccountClaims, name string) error {
	creds, err := os.ReadFile(filepath.Join(dir, name+".creds"))
	if err != nil {
		return err
	}
	token, err := jwt.ParseDecoratedJWT(creds)
	if err != nil {
		return err
	}
	u, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return err
	}
	a.Revoke(u.Subject)
	return nil
}

// writeServer writes what the server needs: no secret is in it.
func writeServer(dir string, a *jwt.AccountClaims) error {
	signer, id, err := key(dir, "operator", nkeys.PrefixByteOperator)
	if err != nil {
		return err
	}
	_, system, err := key(dir, "system", nkeys.PrefixByteAccount)
	if err != nil {
		return err
	}
	o, s := jwt.NewOperatorClaims(id), jwt.NewAccountClaims(system)
	o.Name, o.SystemAccount, s.Name = "btools", system, "SYS"
	var tokens [3]string
	for i, c := range []jwt.Claims{o, a, s} {
		if tokens[i], err = c.Encode(signer); err != nil {
			return err
		}
	}
	file := filepath.Join(dir, "operator.jwt")
	if first, err := os.ReadFile(file); err == nil { // a server that reads its file again takes no other one
		tokens[0] = string(first)
	} else if err := os.WriteFile(file, []byte(tokens[0]), 0o600); err != nil {
		return err
	}
	const config = "operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n  %s: %s\n  %s: %s\n}\n"
	text := fmt.Sprintf(config, tokens[0], system, a.Subject, tokens[1], system, tokens[2])
	if err := os.WriteFile(filepath.Join(dir, "account.jwt"), []byte(tokens[1]), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "server.conf"), []byte(text), 0o644)
}
