//! Record batches of Kafka's clients, and damaged ones.

use std::path::Path;

use serde_json::Value;

use super::*;
use crate::payload::Decoded;

/// The part of a batch that is not stored.
const LEFT_OUT: usize = 21;

fn vectors() -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/kafka");
    let text = std::fs::read_to_string(folder.join("batches.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn unhex(value: &Value) -> Option<Vec<u8>> {
    let pairs = value.as_str()?.as_bytes().chunks(2);
    Some(
        pairs
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
            .collect(),
    )
}

#[test]
fn batches_of_kafkas_clients_are_read() {
    let vectors = vectors();
    let records = vectors["records"].as_array().unwrap();
    let batches = vectors["batches"].as_array().unwrap();
    assert!(batches.len() >= 8, "{}", batches.len());
    for batch in batches {
        let name = format!("{} {}", batch["client"], batch["codec"]);
        let stored = Bytes::from(unhex(&batch["batch"]).unwrap()).slice(LEFT_OUT..);
        let payload = decompress(Codec::KafkaV2.into(), &stored).unwrap();
        let decoded = Decoded::new(payload, records.len()).unwrap();
        for (row, wanted) in records.iter().enumerate() {
            let record = decoded.record(&"t".into(), 0, 0, row);
            assert_eq!(record.value.map(Vec::from), unhex(&wanted["value"]), "{name} {row}");
            assert_eq!(record.key.map(Vec::from), unhex(&wanted["key"]), "{name} {row}");
            let time = wanted["timestamp_ms"].as_i64().unwrap() * 1000;
            assert_eq!(record.timestamp_us, time, "{name} {row}");
            let headers: Vec<_> =
                record.headers.into_iter().map(|h| (h.key, h.value.map(Vec::from))).collect();
            let pair = |two: &Value| (two[0].as_str().unwrap().to_owned(), unhex(&two[1]));
            let expected: Vec<_> = wanted["headers"].as_array().unwrap().iter().map(pair).collect();
            assert_eq!(headers, expected, "{name} {row}");
        }
        for size in 0..stored.len() {
            assert!(to_columns(&stored.slice(..size)).is_err(), "{name}: cut at {size}");
        }
        let longer = [&stored[..], &[0]].concat();
        assert!(to_columns(&longer.into()).is_err(), "{name}: a byte too many");
    }
}

#[test]
fn a_snappy_block_of_librdkafka_is_read() {
    let block = &vectors()["snappy_block"];
    let plain = unsnappy(&unhex(&block["block"]).unwrap()).unwrap();
    assert_eq!(Some(plain.to_vec()), unhex(&block["plain"]));
}

#[test]
fn a_header_key_that_is_not_utf8_is_refused() {
    let mut batch = vec![0; HEAD];
    batch[39] = 1;
    // Length, attributes, two deltas, null key, null value, one header: the key ff, a null.
    batch.extend([18, 0, 0, 0, 1, 1, 2, 2, 0xff, 1]);
    let error = to_columns(&batch.into()).unwrap_err();
    assert!(error.message().contains("not UTF-8"), "{error}");
}
