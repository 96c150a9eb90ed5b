package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// checkKeys refuses keys of a YAML document that the Go type doesn't have.
func checkKeys(raw []byte, into any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return err
	}
	if len(doc.Content) == 0 {
		return nil
	}
	return checkNode(doc.Content[0], reflect.TypeOf(into), "")
}

func checkNode(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	fields := map[string]reflect.Type{}
	switch t.Kind() {
	case reflect.Struct:
		for field := range t.Fields() {
			fields[field.Tag.Get("yaml")] = field.Type
		}
	case reflect.Map:
		for i := 0; i+1 < len(n.Content); i += 2 {
			fields[n.Content[i].Value] = t.Elem()
		}
	default:
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		ft, ok := fields[key.Value]
		if !ok {
			return fmt.Errorf("line %d: unknown key %s%s", key.Line, path+key.Value, didYouMean(key.Value, fields))
		}
		if err := checkNode(n.Content[i+1], ft, path+key.Value+"."); err != nil {
			return err
		}
	}
	return nil
}

func didYouMean(word string, known map[string]reflect.Type) string {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	if best, ok := Nearest(word, names); ok {
		return fmt.Sprintf("; did you mean %s?", best)
	}
	return "; known are " + strings.Join(names, ", ")
}

// Nearest finds the word that differs least from the one given, if one is near
// enough to be meant: at most a third of its letters differ.
func Nearest(word string, known []string) (string, bool) {
	best, bestDist := "", len(word)/3+2
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < bestDist {
			best, bestDist = k, d
		}
	}
	return best, best != ""
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
