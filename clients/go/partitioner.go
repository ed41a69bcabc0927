package oncelog

import "encoding/binary"

// Partitioner says which partition a message goes to; key is nil for a message without one.
type Partitioner func(topic string, key []byte, partitions int) int32

// keyPartition is where Kafka's Java producer puts a key.
func keyPartition(key []byte, partitions int) int32 {
	return int32(murmur2(key) & 0x7fffffff % uint32(partitions))
}

// murmur2 is Kafka's 32-bit murmur2, seed 0x9747b28c.
func murmur2(data []byte) uint32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * m
		k = (k ^ k>>24) * m
		h = h*m ^ k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
