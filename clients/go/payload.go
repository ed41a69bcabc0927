package oncelog

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// The payload of a batch: records as columns, as docs/protocol.md lays them out. A batch
// fills its columns record by record, so that encoding it is little more than a copy.

const (
	payloadMagic    = "OLB1"
	preambleBytes   = 32
	maxPayloadBytes = 64 << 20
	// Most bytes that one record adds beside its own bytes, headers left out: 4 + 4 of offsets,
	// 8 of timestamp, validity bits, and 4 of header offsets.
	recordOverhead = 21
	headerOverhead = 9
	// Preamble, one more offset in each of five offset buffers, and all padding.
	batchOverhead = preambleBytes + 5*4 + 11*7
)

const (
	flagValueValidity = 1 << iota
	flagKeys
	flagKeyValidity
	flagHeaders
	flagHeaderValueValidity
	allFlags = 1<<iota - 1
)

// column is a column of byte strings, of which some may be null.
type column struct {
	ends  []int32 // where each item ends in data
	data  []byte
	nulls int
	valid []byte // a bitmap, made when there is a first null
}

func (c *column) add(item []byte) {
	row := len(c.ends)
	if item == nil {
		if c.nulls == 0 {
			c.valid = append(c.valid[:0], make([]byte, row/8+1)...)
			for i := range row {
				c.valid[i/8] |= 1 << (i % 8)
			}
		}
		c.nulls++
	}
	if c.nulls > 0 {
		for len(c.valid) <= row/8 {
			c.valid = append(c.valid, 0)
		}
		if item != nil {
			c.valid[row/8] |= 1 << (row % 8)
		}
	}
	c.data = append(c.data, item...)
	c.ends = append(c.ends, int32(len(c.data)))
}

// addNulls puts nulls in for the rows before the first item.
func (c *column) addNulls(rows int) {
	for range rows {
		c.add(nil)
	}
}

func (c *column) reset() {
	c.ends, c.data, c.valid, c.nulls = c.ends[:0], c.data[:0], c.valid[:0], 0
}

// columns hold the records of a batch while it fills.
type columns struct {
	values       column
	keys         column // empty while all keys are null
	timestamps   []int64
	headerEnds   []int32 // per record, into the header columns; empty while there is no header
	headerKeys   column
	headerValues column
}

func (c *columns) len() int { return len(c.timestamps) }

func (c *columns) add(value, key []byte, headers []Header, timestampUs int64) {
	row := c.len()
	c.values.add(value)
	if key != nil && len(c.keys.ends) == 0 {
		c.keys.addNulls(row)
	}
	if key != nil || len(c.keys.ends) > 0 {
		c.keys.add(key)
	}
	if len(headers) > 0 && len(c.headerEnds) == 0 {
		c.headerEnds = append(c.headerEnds[:0], make([]int32, row)...)
	}
	if len(headers) > 0 || len(c.headerEnds) > 0 {
		for _, header := range headers {
			c.headerKeys.add([]byte(header.Key))
			c.headerValues.add(header.Value)
		}
		c.headerEnds = append(c.headerEnds, int32(len(c.headerKeys.ends)))
	}
	c.timestamps = append(c.timestamps, timestampUs)
}

func (c *columns) reset() {
	c.values.reset()
	c.keys.reset()
	c.headerKeys.reset()
	c.headerValues.reset()
	c.timestamps, c.headerEnds = c.timestamps[:0], c.headerEnds[:0]
}

func (c *columns) maxTimestamp() int64 {
	highest := int64(math.MinInt64)
	for _, stamp := range c.timestamps {
		highest = max(highest, stamp)
	}
	return highest
}

// encode returns the payload.
func (c *columns) encode() ([]byte, error) {
	n := c.len()
	if n == 0 {
		return nil, fail(ErrInvalidBatch, "a batch needs at least one record")
	}
	hasKeys := len(c.keys.ends) > 0
	hasHeaders := len(c.headerKeys.ends) > 0
	flags := uint32(0)
	size := preambleBytes + c.values.size() + 8*n
	if c.values.nulls > 0 {
		flags |= flagValueValidity
	}
	if hasKeys {
		flags |= flagKeys
		if c.keys.nulls > 0 {
			flags |= flagKeyValidity
		}
		size += c.keys.size()
	}
	if hasHeaders {
		flags |= flagHeaders
		if c.headerValues.nulls > 0 {
			flags |= flagHeaderValueValidity
		}
		size += padded(4*(n+1)) + c.headerKeys.size() + c.headerValues.size()
	}
	if size > maxPayloadBytes {
		return nil, fail(ErrInvalidBatch, "%d bytes are over the limit %d", size, maxPayloadBytes)
	}
	out := make([]byte, 0, size)
	out = append(out, payloadMagic...)
	for _, number := range []int{
		int(flags), n, len(c.headerKeys.ends), len(c.values.data), len(c.keys.data),
		len(c.headerKeys.data), len(c.headerValues.data),
	} {
		out = binary.LittleEndian.AppendUint32(out, uint32(number))
	}
	out = c.values.encode(out)
	if hasKeys {
		out = c.keys.encode(out)
	}
	for _, stamp := range c.timestamps {
		out = binary.LittleEndian.AppendUint64(out, uint64(stamp))
	}
	if hasHeaders {
		out = appendOffsets(out, c.headerEnds)
		out = c.headerKeys.encode(out)
		out = c.headerValues.encode(out)
	}
	if len(out) != size {
		panic(fmt.Sprintf("oncelog: a payload of %d bytes was to have %d", len(out), size))
	}
	return out, nil
}

func padded(size int) int { return (size + 7) &^ 7 }

func (c *column) size() int {
	size := padded(4*(len(c.ends)+1)) + padded(len(c.data))
	if c.nulls > 0 {
		size += padded(len(c.valid))
	}
	return size
}

func (c *column) encode(out []byte) []byte {
	if c.nulls > 0 {
		out = pad(append(out, c.valid...))
	}
	out = appendOffsets(out, c.ends)
	return pad(append(out, c.data...))
}

func appendOffsets(out []byte, ends []int32) []byte {
	out = binary.LittleEndian.AppendUint32(out, 0)
	for _, end := range ends {
		out = binary.LittleEndian.AppendUint32(out, uint32(end))
	}
	return pad(out)
}

// pad fills up with zeros: all that comes before has a multiple of 8 bytes.
func pad(out []byte) []byte {
	var zeros [7]byte
	return append(out, zeros[:padded(len(out))-len(out)]...)
}

// payloadReader cuts a payload into its buffers.
type payloadReader struct {
	rest []byte
	err  error
}

// take returns the next buffer of so many bytes and goes on behind its padding.
func (r *payloadReader) take(size int) []byte {
	if r.err != nil || padded(size) > len(r.rest) {
		r.err = fail(ErrInvalidBatch, "the payload is shorter than its preamble asks for")
		return nil
	}
	buffer := r.rest[:size:size]
	r.rest = r.rest[padded(size):]
	return buffer
}

// column reads a column of n items with so many bytes in all.
func (r *payloadReader) column(name string, n, size int, withNulls bool) *readColumn {
	var c readColumn
	if withNulls {
		c.valid = r.take((n + 7) / 8)
	}
	c.ends = r.offsets(name, n, size)
	c.data = r.take(size)
	return &c
}

// offsets reads n+1 offsets, which must rise from 0 to end.
func (r *payloadReader) offsets(name string, n, end int) []byte {
	raw := r.take(4 * (n + 1))
	if r.err != nil {
		return nil
	}
	before := int32(0)
	for at := 0; at < len(raw); at += 4 {
		offset := int32(binary.LittleEndian.Uint32(raw[at:]))
		if offset < before || at == 0 && offset != 0 {
			r.err = fail(ErrInvalidBatch, "%s offsets do not rise from 0 to %d", name, end)
			return nil
		}
		before = offset
	}
	if int(before) != end {
		r.err = fail(ErrInvalidBatch, "%s offsets do not rise from 0 to %d", name, end)
	}
	return raw
}

type readColumn struct {
	valid, ends, data []byte
}

// at returns an item, nil for a null. Its memory is the payload's.
func (c *readColumn) at(row int) []byte {
	if c.valid != nil && c.valid[row/8]>>(row%8)&1 == 0 {
		return nil
	}
	from, to := offsetAt(c.ends, row), offsetAt(c.ends, row+1)
	return c.data[from:to:to]
}

func offsetAt(raw []byte, row int) int { return int(binary.LittleEndian.Uint32(raw[4*row:])) }

// decoded are the columns of a payload, all checked.
type decoded struct {
	count                    int
	values                   *readColumn
	keys                     *readColumn // nil: all keys are null
	timestamps               []byte
	headerEnds               []byte // nil: no record has headers
	headerKeys, headerValues *readColumn
}

// decodePayload refuses all but exactly a payload of count records.
func decodePayload(payload []byte, count int) (*decoded, error) {
	if len(payload) > maxPayloadBytes {
		return nil, fail(ErrInvalidBatch, "%d bytes are over the limit %d", len(payload), maxPayloadBytes)
	}
	if len(payload) < preambleBytes || string(payload[:4]) != payloadMagic {
		return nil, fail(ErrInvalidBatch, "the payload does not begin with a preamble")
	}
	var numbers [7]int
	for i := range numbers {
		numbers[i] = int(binary.LittleEndian.Uint32(payload[4+4*i:]))
	}
	flags, n, h := numbers[0], numbers[1], numbers[2]
	switch {
	case slices.Min(numbers[:]) < 0 || slices.Max(numbers[:]) > maxPayloadBytes:
		return nil, fail(ErrInvalidBatch, "the preamble's lengths are over the limit %d", maxPayloadBytes)
	case flags&^allFlags != 0:
		return nil, fail(ErrInvalidBatch, "unknown flags %#x", flags)
	case n == 0:
		return nil, fail(ErrInvalidBatch, "the payload holds no records")
	case n != count:
		return nil, fail(ErrInvalidBatch, "the payload holds %d records, its header says %d", n, count)
	case flags&flagKeys == 0 && (numbers[4] > 0 || flags&flagKeyValidity != 0):
		return nil, fail(ErrInvalidBatch, "keys without the flag for keys")
	case flags&flagHeaders == 0 &&
		(h > 0 || numbers[5] > 0 || numbers[6] > 0 || flags&flagHeaderValueValidity != 0):
		return nil, fail(ErrInvalidBatch, "headers without the flag for headers")
	}
	r := payloadReader{rest: payload[preambleBytes:]}
	d := &decoded{count: n}
	d.values = r.column("value", n, numbers[3], flags&flagValueValidity != 0)
	if flags&flagKeys != 0 {
		d.keys = r.column("key", n, numbers[4], flags&flagKeyValidity != 0)
	}
	d.timestamps = r.take(8 * n)
	if flags&flagHeaders != 0 {
		d.headerEnds = r.offsets("header", n, h)
		d.headerKeys = r.column("header key", h, numbers[5], false)
		d.headerValues = r.column("header value", h, numbers[6], flags&flagHeaderValueValidity != 0)
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = fail(ErrInvalidBatch, "the payload has %d bytes more than its preamble asks for", len(r.rest))
	}
	if r.err == nil && d.headerKeys != nil && !utf8Columns(d.headerKeys, h) {
		r.err = fail(ErrInvalidBatch, "a header key is not UTF-8")
	}
	if r.err != nil {
		return nil, r.err
	}
	return d, nil
}

func utf8Columns(c *readColumn, n int) bool {
	for row := range n {
		if !utf8.Valid(c.at(row)) {
			return false
		}
	}
	return true
}

// record fills in the payload's fields of a record.
// isBlank says of a row of a carried batch that compaction has removed the record.
func (d *decoded) isBlank(row int) bool {
	return d.values.at(row) == nil && (d.keys == nil || d.keys.at(row) == nil)
}

func (d *decoded) record(row int, into *Record) {
	into.Value = d.values.at(row)
	if d.keys != nil {
		into.Key = d.keys.at(row)
	}
	into.TimestampUs = int64(binary.LittleEndian.Uint64(d.timestamps[8*row:]))
	if d.headerEnds == nil {
		return
	}
	from, to := offsetAt(d.headerEnds, row), offsetAt(d.headerEnds, row+1)
	for i := from; i < to; i++ {
		into.Headers = append(into.Headers, Header{string(d.headerKeys.at(i)), d.headerValues.at(i)})
	}
}
