package oncelog

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"unicode/utf8"

	"github.com/klauspost/compress/snappy"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// A record batch of Kafka's protocol (v2), as columns. It is stored from its byte 21 on: 40 bytes of
// attributes, counts, timestamps and producer, big-endian, then the records, compressed together.
// Lengths and deltas are zigzag varints.

const (
	kafkaHead      = 40
	kafkaCodecMask = 7
	xerialHead     = 16 // its magic, and two versions
)

const xerialMagic = "\x82SNAPPY\x00"

// kafkaColumns returns the batch's records as a payload.
func kafkaColumns(payload []byte) ([]byte, error) {
	if len(payload) < kafkaHead {
		return nil, fail(ErrInvalidBatch, "Kafka batch of %d bytes, its head alone has %d", len(payload), kafkaHead)
	}
	codec := binary.BigEndian.Uint16(payload) & kafkaCodecMask
	base := int64(binary.BigEndian.Uint64(payload[6:]))
	count := int32(binary.BigEndian.Uint32(payload[36:]))
	data, err := kafkaUnpacked(codec, payload[kafkaHead:])
	if err != nil {
		return nil, err
	}
	r := kafkaReader{rest: data}
	var c columns
	for number := range int64(count) {
		if err := r.record(&c, number, base); err != nil {
			return nil, err
		}
	}
	if len(r.rest) > 0 {
		return nil, fail(ErrInvalidBatch, "%d bytes follow the records of a Kafka batch", len(r.rest))
	}
	return c.encode()
}

// kafkaReader reads records, or one of them.
type kafkaReader struct {
	rest  []byte
	short bool // it ended too early
}

func (r *kafkaReader) record(c *columns, number, base int64) error {
	length := r.varint()
	if r.short || length < 1 || length > int64(len(r.rest)) {
		return fail(ErrInvalidBatch, "record %d of a Kafka batch has %d bytes", number, length)
	}
	one := kafkaReader{rest: r.rest[:length]}
	r.rest = r.rest[length:]
	one.take(1) // its attributes
	stamp := base + one.varint()
	if delta := one.varint(); delta != number {
		return fail(ErrInvalidBatch, "record %d of a Kafka batch says it is number %d", number, delta)
	}
	key, value := one.bytes(), one.bytes()
	count := one.varint()
	if count < 0 || count > int64(len(one.rest)) {
		return fail(ErrInvalidBatch, "a record of a Kafka batch has %d headers", count)
	}
	var headers []Header
	for range count {
		name := one.bytes()
		if !utf8.Valid(name) {
			return fail(ErrInvalidBatch, "the header key %q is not UTF-8", name)
		}
		headers = append(headers, Header{string(name), one.bytes()})
	}
	if one.short || len(one.rest) > 0 {
		return fail(ErrInvalidBatch, "record %d of a Kafka batch is not as long as it says", number)
	}
	c.add(value, key, headers, stamp*1000)
	return nil
}

func (r *kafkaReader) varint() int64 {
	number, size := binary.Varint(r.rest)
	if size <= 0 {
		r.short, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return number
}

// bytes returns a null as nil.
func (r *kafkaReader) bytes() []byte {
	length := r.varint()
	if length < 0 {
		return nil
	}
	return r.take(length)
}

func (r *kafkaReader) take(length int64) []byte {
	if r.short || length > int64(len(r.rest)) {
		r.short, r.rest = true, nil
		return nil
	}
	taken := r.rest[:length:length]
	r.rest = r.rest[length:]
	return taken
}

// --- codecs --------------------------------------------------------------------------

func kafkaUnpacked(codec uint16, data []byte) ([]byte, error) {
	switch codec {
	case 0:
		return data, nil
	case 1:
		return gunzip(data)
	case 2:
		return unsnappy(data)
	case 3:
		return decompress(pb.Codec_CODEC_LZ4, data)
	case 4:
		return decompress(pb.Codec_CODEC_ZSTD, data)
	}
	return nil, fail(ErrInvalidBatch, "compression type %d of a Kafka batch is unknown", codec)
}

func gunzip(data []byte) ([]byte, error) {
	source := bytes.NewReader(data)
	reader, err := gzip.NewReader(source)
	if err != nil {
		return nil, fail(ErrInvalidBatch, "gzip records are damaged: %v", err)
	}
	reader.Multistream(false)
	out, err := io.ReadAll(io.LimitReader(reader, maxPayloadBytes+1))
	switch {
	case err != nil:
		return nil, fail(ErrInvalidBatch, "gzip records are damaged: %v", err)
	case len(out) > maxPayloadBytes:
		return nil, fail(ErrInvalidBatch, "gzip records unpack to more than the limit %d", maxPayloadBytes)
	case source.Len() > 0:
		return nil, fail(ErrInvalidBatch, "gzip records are not exactly one stream")
	}
	return out, nil
}

// unsnappy unpacks blocks as Java's client frames them (xerial), or the one raw block of others.
func unsnappy(data []byte) (out []byte, err error) {
	if !bytes.HasPrefix(data, []byte(xerialMagic)) {
		return snappyBlock(out, data)
	}
	if len(data) < xerialHead {
		return nil, fail(ErrInvalidBatch, "snappy records are damaged: they end too early")
	}
	for rest := data[xerialHead:]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, fail(ErrInvalidBatch, "snappy records are damaged: they end too early")
		}
		length := int64(binary.BigEndian.Uint32(rest))
		if rest = rest[4:]; length == 0 || length > int64(len(rest)) {
			return nil, fail(ErrInvalidBatch, "snappy records are damaged: a block of %d bytes", length)
		}
		if out, err = snappyBlock(out, rest[:length]); err != nil {
			return nil, err
		}
		rest = rest[length:]
	}
	return out, nil
}

func snappyBlock(out, block []byte) ([]byte, error) {
	size, err := snappy.DecodedLen(block)
	if err == nil && len(out)+size > maxPayloadBytes {
		return nil, fail(ErrInvalidBatch, "snappy records unpack to more than the limit %d", maxPayloadBytes)
	}
	var plain []byte
	if err == nil {
		plain, err = snappy.Decode(nil, block)
	}
	if err != nil {
		return nil, fail(ErrInvalidBatch, "snappy records are damaged: %v", err)
	}
	return append(out, plain...), nil
}
