// Renders the chart in deploy/helm as `helm template` does, for machines without Helm: the same template language and functions
// (Go's and sprig's), and those of Helm's own that the chart uses. It does not check names that Kubernetes would refuse.
//
//	main CHART NAMESPACE [VALUES...]
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	check(err)
	values := map[string]interface{}{}
	check(yaml.UnmarshalStrict(text, &values))
	return values
}

// Lays values over others: maps are merged, all else is replaced.
func merge(below, above map[string]interface{}) map[string]interface{} {
	for key, value := range above {
		inner, isMap := value.(map[string]interface{})
		under, wasMap := below[key].(map[string]interface{})
		if isMap && wasMap {
			value = merge(under, inner)
		}
		below[key] = value
	}
	return below
}

func main() {
	chart, namespace := os.Args[1], os.Args[2]
	values := read(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[3:] {
		values = merge(values, read(path))
	}
	about := read(filepath.Join(chart, "Chart.yaml"))
	data := map[string]interface{}{
		"Values":  values,
		"Release": map[string]interface{}{"Name": "wakeq", "Namespace": namespace, "Service": "Helm"},
		"Chart": map[string]interface{}{
			"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"],
		},
	}
	all := template.New("chart").Option("missingkey=error")
	functions := sprig.TxtFuncMap()
	// A chart can't read the environment.
	delete(functions, "env")
	delete(functions, "expandenv")
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		check(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		var text strings.Builder
		check(all.ExecuteTemplate(&text, name, data))
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text.String()) != "" {
			fmt.Printf("---\n# %s\n%s\n", name, text.String())
		}
	}
}
