// Package spell guesses what somebody meant to write, and writes a number with
// its noun.
package spell

import "strconv"

// Count is a number and its noun, which has a plural in s.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// Nearest is the candidate that is nearest to the word, "" if none is near:
// as many letters may differ as a third of the word's, and one at least.
func Nearest(word string, candidates []string) string {
	best, distance := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := Distance(word, c); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// Distance is how many letters to change, add or leave out lie between a and
// b (Levenshtein), of letters that are bytes.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			up := row[j+1]
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, up+1, row[j]+1)
			diagonal = up
		}
	}
	return row[len(b)]
}
