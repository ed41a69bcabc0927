//! The vectors of tests/vectors, byte for byte, and bytes to refuse.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::compress::{Compression, checksum, decompress};
use crate::pb::Codec;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors")
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2);
    pairs.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(unhex)
}

fn read_hex(name: &str) -> Bytes {
    unhex(&std::fs::read_to_string(folder().join(name)).unwrap()).into()
}

fn read_json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join(name)).unwrap()).unwrap()
}

struct Wanted {
    value: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    timestamp_us: i64,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

fn records_of(vector: &Value) -> Vec<Wanted> {
    let record = |record: &Value| Wanted {
        value: bytes_of(&record["value"]),
        key: bytes_of(&record["key"]),
        timestamp_us: record["timestamp_us"].as_i64().unwrap(),
        headers: record["headers"]
            .as_array()
            .map(|all| {
                let pair = |two: &Value| (two[0].as_str().unwrap().into(), bytes_of(&two[1]));
                all.iter().map(pair).collect()
            })
            .unwrap_or_default(),
    };
    vector["records"].as_array().unwrap().iter().map(record).collect()
}

fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).unwrap();
    let mut names: Vec<String> = files
        .filter_map(|file| {
            file.unwrap().file_name().to_str()?.strip_suffix(".json").map(Into::into)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 10, "{names:?}");
    names
}

fn encoded(records: &[Wanted]) -> Vec<u8> {
    let mut columns = Columns::default();
    for record in records {
        let headers: Vec<_> =
            record.headers.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
        columns.add(record.value.as_deref(), record.key.as_deref(), &headers, record.timestamp_us);
    }
    columns.encode().unwrap()
}

fn assert_reads(payload: Bytes, wanted: &[Wanted], name: &str) {
    let decoded = Decoded::new(payload, wanted.len()).unwrap();
    for (row, wanted) in wanted.iter().enumerate() {
        let record = decoded.record(&"t".into(), 3, 100, row);
        assert_eq!(record.offset, 100 + row as i64);
        assert_eq!(record.value.as_deref(), wanted.value.as_deref(), "{name} {row}");
        assert_eq!(record.key.as_deref(), wanted.key.as_deref(), "{name} {row}");
        assert_eq!(record.timestamp_us, wanted.timestamp_us, "{name} {row}");
        let headers: Vec<_> = record
            .headers
            .into_iter()
            .map(|header| (header.key, header.value.map(|value| value.to_vec())))
            .collect();
        assert_eq!(headers, wanted.headers, "{name} {row}");
    }
}

#[test]
fn vectors_are_written_and_read() {
    for name in names() {
        let vector = read_json(&format!("{name}.json"));
        let records = records_of(&vector);
        let hex = read_hex(&format!("{name}.hex"));
        let payload = encoded(&records);
        assert_eq!(payload, hex, "{name}");
        assert_eq!(format!("{:08x}", checksum(&payload)), vector["crc32c"].as_str().unwrap());
        assert_reads(hex, &records, &name);
    }
}

#[test]
fn compressed_vectors_are_read() {
    let records = records_of(&read_json("06-nine-records.json"));
    for (file, codec) in [("zstd", Codec::Zstd), ("zstd-stream", Codec::Zstd), ("lz4", Codec::Lz4)]
    {
        let packed = read_hex(&format!("06-nine-records.{file}.hex"));
        assert_reads(decompress(codec.into(), &packed).unwrap(), &records, file);
    }
}

#[test]
fn what_is_compressed_is_read_again_and_nothing_else() {
    let plain: Vec<u8> = (0..300_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    for compression in [Compression::Zstd, Compression::Lz4] {
        let packed = compression.compress(None, plain.clone()).unwrap();
        assert!(packed.len() < plain.len());
        let codec = compression.codec().into();
        assert_eq!(decompress(codec, &packed).unwrap(), plain);
        let mut longer = packed.to_vec();
        longer.push(0);
        assert!(decompress(codec, &longer.into()).is_err(), "{compression:?}: trailing");
        let twice = [&packed[..], &packed[..]].concat();
        assert!(decompress(codec, &twice.into()).is_err(), "{compression:?}: two frames");
        for end in (0..16).chain([packed.len() / 2, packed.len() - 4, packed.len() - 1]) {
            let cut = decompress(codec, &packed.slice(..end));
            assert!(cut.is_err(), "{compression:?}: cut at {end}");
        }
    }
}

#[test]
fn what_unpacks_to_too_much_is_refused() {
    let plain = vec![0; MAX_PAYLOAD_BYTES + 1];
    for compression in [Compression::Zstd, Compression::Lz4] {
        let packed = compression.compress(None, plain.clone()).unwrap();
        let error = decompress(compression.codec().into(), &packed).unwrap_err();
        assert!(error.message().contains("limit"), "{error}");
    }
    let at_limit = vec![0; MAX_PAYLOAD_BYTES];
    let packed = Compression::Zstd.compress(None, at_limit).unwrap();
    assert_eq!(decompress(Codec::Zstd.into(), &packed).unwrap().len(), MAX_PAYLOAD_BYTES);
}

#[test]
fn wrong_payloads_are_refused() {
    let refused = read_json("refused/payloads.json");
    for case in refused.as_array().unwrap() {
        let payload = unhex(case["payload"].as_str().unwrap());
        let count = match payload.get(8..12) {
            Some(n) => u32::from_le_bytes(n.try_into().unwrap()) as usize,
            None => 1,
        };
        assert!(Decoded::new(payload.into(), count).is_err(), "{}", case["name"]);
    }
    let sound = read_hex("01-one-value.hex");
    assert!(Decoded::new(sound.clone(), 2).is_err(), "another count than the header's");
    assert!(Decoded::new(sound, 1).is_ok());
}

#[test]
fn no_damage_makes_a_reader_panic() {
    let sound = read_hex("07-headers.hex");
    let count = records_of(&read_json("07-headers.json")).len();
    for at in 0..sound.len() {
        for bit in 0..8 {
            let mut damaged = sound.to_vec();
            damaged[at] ^= 1 << bit;
            if let Ok(decoded) = Decoded::new(damaged.into(), count) {
                for row in 0..count {
                    decoded.record(&"t".into(), 0, 0, row);
                }
            }
        }
    }
}
