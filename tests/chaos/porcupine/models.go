package main

import (
	"fmt"
	"hash/fnv"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// models: the answers of a single copy without faults.
var models = map[string]porcupine.Model{"log": logModel(), "kv": kvModel()}

// logState is a partition: the offset that comes next, and a hash of all values in their order.
type logState struct {
	next int64
	hash uint64
}

func (s logState) with(value string) logState {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%d %d %s", s.hash, s.next, value)
	return logState{s.next + 1, sum.Sum64()}
}

// logModel: appends that each demand an offset, and at the end the whole log.
func logModel() porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return logState{} },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			now, op := state.(logState), input.(Operation)
			switch {
			case op.Op == "final":
				all := logState{}
				for _, value := range op.Values {
					all = all.with(value)
				}
				return now == all, now
			case op.Result == "ok":
				return now.next == op.Expected && op.Offset == op.Expected, now.with(*op.Value)
			case op.Result == "mismatch":
				return now.next == op.Next && op.Next != op.Expected, now
			case now.next == op.Expected: // unknown: stored, or after all observed operations
				return true, now.with(*op.Value)
			}
			return true, now
		},
		DescribeOperation: func(input, _ interface{}) string {
			op := input.(Operation)
			if op.Op == "final" {
				return fmt.Sprintf("the log has %d records", len(op.Values))
			}
			return fmt.Sprintf("append(%s, at %d): %s %d", *op.Value, op.Expected, op.Result, op.Next)
		},
	}
}

// absent is the state of a key without a value; no value is like it.
const absent = "\x00"

// kvModel: each key by itself, as examples/kv_store.py promises.
func kvModel() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			keys := map[string][]porcupine.Operation{}
			for _, operation := range history {
				key := operation.Input.(Operation).Key
				keys[key] = append(keys[key], operation)
			}
			parts := make([][]porcupine.Operation, 0, len(keys))
			for _, part := range keys {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() interface{} { return absent },
		Step: func(state, input, _ interface{}) (bool, interface{}) {
			now, op := state.(string), input.(Operation)
			told := absent
			if op.Value != nil {
				told = *op.Value
			}
			switch op.Op {
			case "get":
				return op.Result == "unknown" || told == now, now
			case "put":
				return true, told
			}
			count, err := strconv.Atoi(now)
			if now != absent && err != nil {
				return false, now
			}
			after := strconv.Itoa(count + 1)
			return op.Result == "unknown" || told == after, after
		},
		DescribeOperation: func(input, _ interface{}) string {
			op, told := input.(Operation), "nothing"
			if op.Value != nil {
				told = *op.Value
			}
			return fmt.Sprintf("%s(%s): %s %s", op.Op, op.Key, op.Result, told)
		},
	}
}
