package tools

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"btools/lib/jsonrpc"
)

// typedIn returns the arguments of a call that are typed into a page, and so may have the names of secrets.
func typedIn(tool string, args json.RawMessage) (texts []string) {
	switch tool {
	case "browser_type":
		return []string{jsonrpc.GetString(args, "text")}
	case "browser_fill_form":
		for field := range jsonrpc.Elements(jsonrpc.Get(args, "fields")) {
			kind := jsonrpc.GetString(field, "type")
			if !slices.Contains([]string{"checkbox", "radio", "combobox"}, kind) {
				texts = append(texts, jsonrpc.GetString(field, "value"))
			}
		}
	}
	return texts
}

// checkSecrets returns an error if a call names a secret that there is not, or has its name where it would stay.
func (s *Server) checkSecrets(tool string, args json.RawMessage) error {
	if s.Secrets == nil || !bytes.Contains(args, []byte("{{")) || tool == "browser_find" { // it finds the names
		return nil
	}
	left, _ := s.Secrets.Names(string(args))
	described, _ := s.Secrets.Names(jsonrpc.GetString(args, "element")) // as results call it
	for _, name := range described {
		i := slices.Index(left, name)
		left = slices.Delete(left, i, i+1)
	}
	for _, text := range typedIn(tool, args) {
		names, err := s.Secrets.Names(text)
		if err != nil {
			return err
		}
		for _, name := range names {
			if i := slices.Index(left, name); i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("{{%s}} is replaced in the text of browser_type and the values of browser_fill_form alone, "+
			"and nothing was done: scripts, addresses and others could show it", left[0])
	}
	return nil
}
