package oncelog

import (
	"bytes"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	pb "github.com/oncelog/oncelog/clients/go/internal/oncelogv1"
)

// Compression is how payloads are compressed on their way and in the log.
type Compression string

const (
	// NoCompression sends payloads as they are.
	NoCompression Compression = "none"
	// Zstd compresses most.
	Zstd Compression = "zstd"
	// LZ4 costs least.
	LZ4 Compression = "lz4"
)

var codecs = map[Compression]pb.Codec{
	NoCompression: pb.Codec_CODEC_NONE,
	Zstd:          pb.Codec_CODEC_ZSTD,
	LZ4:           pb.Codec_CODEC_LZ4,
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is CRC-32C.
func checksum(payload []byte) uint32 { return crc32.Checksum(payload, castagnoli) }

// compressor compresses payloads with one codec and level. Not for use by two goroutines.
type compressor struct {
	codec pb.Codec
	zstd  *zstd.Encoder
	lz4   []lz4.Option
}

// newCompressor takes a level of zstd's own scale, 1 to 22, or of lz4's, 0 to 9; nil: the default.
func newCompressor(compression Compression, level *int) (*compressor, error) {
	c := &compressor{codec: codecs[compression]}
	switch c.codec {
	case pb.Codec_CODEC_ZSTD:
		wanted := zstd.SpeedDefault
		if level != nil {
			wanted = zstd.EncoderLevelFromZstd(*level)
		}
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(wanted), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, fail(ErrConfig, "compression: %v", err)
		}
		c.zstd = encoder
	case pb.Codec_CODEC_LZ4:
		if level != nil && *level > 0 {
			c.lz4 = append(c.lz4, lz4.CompressionLevelOption(lz4.CompressionLevel(1<<(8+min(*level, 9)))))
		}
	}
	return c, nil
}

func (c *compressor) compress(payload []byte) ([]byte, error) {
	switch c.codec {
	case pb.Codec_CODEC_ZSTD:
		return c.zstd.EncodeAll(payload, make([]byte, 0, len(payload)/2)), nil
	case pb.Codec_CODEC_LZ4:
		var out bytes.Buffer
		writer := lz4.NewWriter(&out)
		options := append([]lz4.Option{lz4.SizeOption(uint64(len(payload)))}, c.lz4...)
		if err := writer.Apply(options...); err != nil {
			return nil, err
		}
		if _, err := writer.Write(payload); err != nil {
			return nil, err
		}
		if err := writer.Close(); err != nil {
			return nil, err
		}
		return out.Bytes(), nil
	}
	return payload, nil
}

// A window bounds the memory of a decompressor.
var unzstd = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxWindow(1<<27),
		zstd.WithDecoderMaxMemory(maxPayloadBytes))
})

// decompress returns the payload; it never allocates much more than the limit of a payload, even if
// a frame claims more.
func decompress(codec pb.Codec, data []byte) ([]byte, error) {
	switch codec {
	case pb.Codec_CODEC_NONE:
		return data, nil
	case pb.Codec_CODEC_ZSTD:
		decoder, err := unzstd()
		if err != nil {
			return nil, err
		}
		payload, err := decoder.DecodeAll(data, nil)
		if err != nil {
			return nil, fail(ErrInvalidBatch, "zstd payload is damaged: %v", err)
		}
		return payload, nil
	case pb.Codec_CODEC_LZ4:
		return unlz4(data)
	case pb.Codec_CODEC_KAFKA_V2:
		return kafkaColumns(data)
	}
	return nil, fail(ErrInvalidBatch, "unknown codec %d", codec)
}

func unlz4(data []byte) ([]byte, error) {
	source := bytes.NewReader(data)
	reader := lz4.NewReader(source)
	if err := reader.Apply(lz4.ConcurrencyOption(1)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(min(len(data)*2, maxPayloadBytes) + bytes.MinRead)
	if _, err := out.ReadFrom(io.LimitReader(reader, maxPayloadBytes+1)); err != nil {
		return nil, fail(ErrInvalidBatch, "lz4 payload is damaged: %v", err)
	}
	if out.Len() > maxPayloadBytes {
		return nil, fail(ErrInvalidBatch, "lz4 payload unpacks to more than the limit %d", maxPayloadBytes)
	}
	if source.Len() > 0 {
		return nil, fail(ErrInvalidBatch, "lz4 payload is not exactly one frame")
	}
	return out.Bytes(), nil
}
