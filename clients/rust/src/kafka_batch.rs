//! A record batch of Kafka's protocol (v2), as columns. It is stored from its byte 21 on: 40 bytes of
//! attributes, counts, timestamps and producer, big-endian, then the records, compressed together.
//! Lengths and deltas are zigzag varints.

use std::fmt::Display;

use bytes::Bytes;
use flate2::bufread::GzDecoder;

use crate::compress::{damaged, decompress, read_all};
use crate::errors::{Error, ErrorKind, Result};
use crate::payload::{Columns, MAX_PAYLOAD_BYTES};
use crate::pb::Codec;

const HEAD: usize = 40;
const CODEC: u8 = 7;
const XERIAL: &[u8] = b"\x82SNAPPY\0";
/// Its magic, and two versions.
const XERIAL_HEAD: usize = 16;

/// Returns the batch's records as a payload.
pub(crate) fn to_columns(payload: &Bytes) -> Result<Bytes> {
    if payload.len() < HEAD {
        return Err(invalid(format!("{} bytes, its head alone has {HEAD}", payload.len())));
    }
    let number = |at: usize, size: usize| {
        payload[at..at + size].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)) as i64
    };
    let (base, count) = (number(6, 8), number(36, 4) as i32);
    let data = unpacked(payload[1] & CODEC, &payload.slice(HEAD..))?;
    let mut all = Reader { rest: &data };
    let mut columns = Columns::default();
    for number in 0..count {
        read_record(&mut all, &mut columns, number, base)?;
    }
    if !all.rest.is_empty() {
        return Err(invalid(format!("{} bytes follow its records", all.rest.len())));
    }
    Ok(columns.encode()?.into())
}

fn invalid(problem: impl Display) -> Error {
    Error::new(ErrorKind::InvalidBatch, format!("Kafka batch: {problem}"))
}

fn read_record(all: &mut Reader<'_>, columns: &mut Columns, number: i32, base: i64) -> Result<()> {
    let length = all.varint()?;
    let mut one = Reader { rest: all.take(length)? };
    one.take(1)?; // its attributes
    let time = base.wrapping_add(one.varint()?);
    let delta = one.varint()?;
    if delta != i64::from(number) {
        return Err(invalid(format!("record {number} says it is number {delta}")));
    }
    let (key, value) = (one.bytes()?, one.bytes()?);
    let count = one.varint()?;
    if !(0..=one.rest.len() as i64).contains(&count) {
        return Err(invalid(format!("record {number} has {count} headers")));
    }
    let mut headers = vec![];
    for _ in 0..count {
        let name = one.bytes()?.unwrap_or_default();
        let Ok(name) = std::str::from_utf8(name) else {
            return Err(invalid(format!("the header key {name:?} is not UTF-8")));
        };
        headers.push((name, one.bytes()?));
    }
    if !one.rest.is_empty() {
        return Err(invalid(format!("record {number} is not as long as it says")));
    }
    columns.add(value, key, &headers, time.wrapping_mul(1000));
    Ok(())
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: i64) -> Result<&'a [u8]> {
        let taken = usize::try_from(length).ok().and_then(|size| self.rest.split_at_checked(size));
        let (taken, rest) = taken.ok_or_else(|| invalid("a record ends too early"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<i64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        Err(invalid("a number has more than 64 bits"))
    }

    fn bytes(&mut self) -> Result<Option<&'a [u8]>> {
        match self.varint()? {
            ..0 => Ok(None),
            length => self.take(length).map(Some),
        }
    }
}

// --- codecs ------------------------------------------------------------------------------

fn unpacked(codec: u8, data: &Bytes) -> Result<Bytes> {
    match codec {
        0 => Ok(data.clone()),
        1 => {
            let mut decoder = GzDecoder::new(&data[..]);
            let out = read_all("gzip", data.len(), &mut decoder)?;
            match decoder.into_inner() {
                [] => Ok(out.into()),
                _ => Err(damaged("gzip", "it is not exactly one stream")),
            }
        }
        2 => unsnappy(data),
        3 => decompress(Codec::Lz4.into(), data),
        4 => decompress(Codec::Zstd.into(), data),
        codec => Err(invalid(format!("its compression type {codec} is unknown"))),
    }
}

/// Blocks as Java's client frames them (xerial), or the one raw block of others.
fn unsnappy(data: &[u8]) -> Result<Bytes> {
    let mut out = vec![];
    if !data.starts_with(XERIAL) {
        unsnappy_block(data, &mut out)?;
        return Ok(out.into());
    }
    let mut reader = Reader { rest: data };
    reader.take(XERIAL_HEAD as i64)?;
    while !reader.rest.is_empty() {
        let length = reader.take(4)?.iter().fold(0i64, |sum, byte| sum << 8 | i64::from(*byte));
        unsnappy_block(reader.take(length)?, &mut out)?;
    }
    Ok(out.into())
}

fn unsnappy_block(block: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let size = snap::raw::decompress_len(block).map_err(|e| damaged("snappy", e))?;
    if out.len() + size > MAX_PAYLOAD_BYTES {
        let message = format!("it unpacks to more than the limit {MAX_PAYLOAD_BYTES}");
        return Err(damaged("snappy", message));
    }
    let plain = snap::raw::Decoder::new().decompress_vec(block);
    out.extend(plain.map_err(|e| damaged("snappy", e))?);
    Ok(())
}

#[cfg(test)]
#[path = "kafka_batch_tests.rs"]
mod tests;
