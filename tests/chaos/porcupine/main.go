// Checks a history of clients for linearizability, by Porcupine, which nobody here wrote.
//
//	history.jsonl (tests/chaos/linearizability.py) --> models.go --> porcupine --> a line for each model
//
// Exit code 0: each is linearizable; 1: one is not; 2: the time did not suffice, or the file is not
// a history.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// Operation is one line of a history: a client's request, its time, and its answer.
type Operation struct {
	Model  string `json:"model"`
	Client int    `json:"client"`
	Call   int64  `json:"call"`
	// Return is -1 for an operation without an answer.
	Return   int64    `json:"return"`
	Op       string   `json:"op"`
	Result   string   `json:"result"` // ok, mismatch, unknown
	Expected int64    `json:"expected"`
	Offset   int64    `json:"offset"`
	Next     int64    `json:"next"`
	Key      string   `json:"key"`
	Value    *string  `json:"value"`
	Values   []string `json:"values"`
}

func read(path string) (map[string][]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	histories := map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<30)
	for number := 1; lines.Scan(); number++ {
		var op Operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, number, err)
		}
		if _, known := models[op.Model]; !known {
			return nil, fmt.Errorf("%s, line %d: model %q is not known", path, number, op.Model)
		}
		end := op.Return
		if end < 0 {
			end = math.MaxInt64
		}
		histories[op.Model] = append(histories[op.Model], porcupine.Operation{
			ClientId: op.Client, Input: op, Call: op.Call, Output: op, Return: end,
		})
	}
	return histories, lines.Err()
}

func main() {
	timeout := flag.Duration("timeout", time.Minute, "for each model")
	page := flag.String("html", "", "where the picture of a history goes that is not linearizable")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: porcupine [-timeout 1m] [-html PAGE] HISTORY")
		os.Exit(2)
	}
	histories, err := read(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	names := make([]string, 0, len(histories))
	for name := range histories {
		names = append(names, name)
	}
	sort.Strings(names)
	code := 0
	for _, name := range names {
		result, info := porcupine.CheckOperationsVerbose(models[name], histories[name], *timeout)
		fmt.Printf("%s: %s, %d operations\n", name, result, len(histories[name]))
		if result == porcupine.Unknown && code == 0 {
			code = 2
		}
		if result != porcupine.Illegal {
			continue
		}
		code = 1
		if *page != "" {
			if err := porcupine.VisualizePath(models[name], info, *page); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
	os.Exit(code)
}
