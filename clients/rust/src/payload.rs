//! The payload of a batch: columns as Arrow lays them out. docs/protocol.md, "The payload".

use std::sync::Arc;

use bytes::Bytes;

use crate::errors::{Error, ErrorKind, Result};
use crate::types::{Header, Record};

const MAGIC: &[u8; 4] = b"OLB1";
const PREAMBLE_BYTES: usize = 32;
pub(crate) const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// Most bytes that one record adds beside its own bytes, headers left out: 4 + 4 of offsets, 8 of
/// timestamp, validity bits, and 4 of header offsets.
pub(crate) const RECORD_OVERHEAD: usize = 21;
pub(crate) const HEADER_OVERHEAD: usize = 9;
/// Preamble, one more offset in each of five offset buffers, and all padding.
pub(crate) const BATCH_OVERHEAD: usize = PREAMBLE_BYTES + 5 * 4 + 11 * 7;

const VALUE_VALIDITY: u32 = 1;
const KEYS: u32 = 2;
const KEY_VALIDITY: u32 = 4;
const HEADERS: u32 = 8;
const HEADER_VALUE_VALIDITY: u32 = 16;
const ALL_FLAGS: u32 = 31;

fn padded(size: usize) -> usize {
    (size + 7) & !7
}

/// Fills up with zeros: all that comes before has a multiple of 8 bytes.
fn pad(out: &mut Vec<u8>) {
    out.resize(padded(out.len()), 0);
}

fn put_offsets(out: &mut Vec<u8>, ends: &[u32]) {
    out.extend_from_slice(&0u32.to_le_bytes());
    for end in ends {
        out.extend_from_slice(&end.to_le_bytes());
    }
    pad(out);
}

/// A column of byte strings, of which some may be null.
#[derive(Default)]
struct Column {
    /// Where each item ends in `data`.
    ends: Vec<u32>,
    data: Vec<u8>,
    nulls: usize,
    /// A bitmap, made when there is a first null.
    valid: Vec<u8>,
}

impl Column {
    fn add(&mut self, item: Option<&[u8]>) {
        let row = self.ends.len();
        if item.is_none() {
            if self.nulls == 0 {
                self.valid = vec![0xff; row / 8];
                self.valid.push((1u8 << (row % 8)) - 1);
            }
            self.nulls += 1;
        }
        if self.nulls > 0 {
            self.valid.resize(row / 8 + 1, 0);
            if item.is_some() {
                self.valid[row / 8] |= 1 << (row % 8);
            }
        }
        self.data.extend_from_slice(item.unwrap_or_default());
        self.ends.push(self.data.len() as u32);
    }

    fn size(&self) -> usize {
        let bitmap = if self.nulls > 0 { padded(self.valid.len()) } else { 0 };
        bitmap + padded(4 * (self.ends.len() + 1)) + padded(self.data.len())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if self.nulls > 0 {
            out.extend_from_slice(&self.valid);
            pad(out);
        }
        put_offsets(out, &self.ends);
        out.extend_from_slice(&self.data);
        pad(out);
    }
}

/// The records of a batch while it fills.
#[derive(Default)]
pub(crate) struct Columns {
    values: Column,
    /// Empty while all keys are null.
    keys: Column,
    timestamps: Vec<i64>,
    /// Per record, into the header columns; empty while there is no header.
    header_ends: Vec<u32>,
    header_keys: Column,
    header_values: Column,
}

impl Columns {
    /// With room for so many records, of so many bytes in all.
    pub(crate) fn with_room(records: usize, bytes: usize) -> Self {
        let mut columns = Self::default();
        columns.values.ends.reserve(records);
        columns.values.data.reserve(bytes);
        columns.timestamps.reserve(records);
        columns
    }

    pub(crate) fn len(&self) -> usize {
        self.timestamps.len()
    }

    pub(crate) fn add(
        &mut self,
        value: Option<&[u8]>,
        key: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
        timestamp_us: i64,
    ) {
        let row = self.len();
        self.values.add(value);
        if key.is_some() && self.keys.ends.is_empty() {
            for _ in 0..row {
                self.keys.add(None);
            }
        }
        if key.is_some() || !self.keys.ends.is_empty() {
            self.keys.add(key);
        }
        if !headers.is_empty() && self.header_ends.is_empty() {
            self.header_ends = vec![0; row];
        }
        if !headers.is_empty() || !self.header_ends.is_empty() {
            for (name, value) in headers {
                self.header_keys.add(Some(name.as_bytes()));
                self.header_values.add(*value);
            }
            self.header_ends.push(self.header_keys.ends.len() as u32);
        }
        self.timestamps.push(timestamp_us);
    }

    pub(crate) fn max_timestamp(&self) -> i64 {
        self.timestamps.iter().copied().max().unwrap_or(i64::MIN)
    }

    /// Returns the payload.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        let n = self.len();
        if n == 0 {
            return Err(refuse("a batch needs at least one record"));
        }
        let has_keys = !self.keys.ends.is_empty();
        let has_headers = !self.header_keys.ends.is_empty();
        let mut flags = 0;
        let mut size = PREAMBLE_BYTES + self.values.size() + 8 * n;
        if self.values.nulls > 0 {
            flags |= VALUE_VALIDITY;
        }
        if has_keys {
            flags |= KEYS | if self.keys.nulls > 0 { KEY_VALIDITY } else { 0 };
            size += self.keys.size();
        }
        if has_headers {
            flags |= HEADERS | if self.header_values.nulls > 0 { HEADER_VALUE_VALIDITY } else { 0 };
            size += padded(4 * (n + 1)) + self.header_keys.size() + self.header_values.size();
        }
        if size > MAX_PAYLOAD_BYTES {
            return Err(refuse(format!("{size} bytes are over the limit {MAX_PAYLOAD_BYTES}")));
        }
        let mut out = Vec::with_capacity(size);
        out.extend_from_slice(MAGIC);
        for number in [
            flags,
            n as u32,
            self.header_keys.ends.len() as u32,
            self.values.data.len() as u32,
            self.keys.data.len() as u32,
            self.header_keys.data.len() as u32,
            self.header_values.data.len() as u32,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.values.encode(&mut out);
        if has_keys {
            self.keys.encode(&mut out);
        }
        for stamp in &self.timestamps {
            out.extend_from_slice(&stamp.to_le_bytes());
        }
        if has_headers {
            put_offsets(&mut out, &self.header_ends);
            self.header_keys.encode(&mut out);
            self.header_values.encode(&mut out);
        }
        assert_eq!(out.len(), size, "the size of a payload");
        Ok(out)
    }
}

fn refuse(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidBatch, message)
}

/// Cuts a payload into its buffers.
struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Returns the next buffer of so many bytes and goes on behind its padding.
    fn take(&mut self, size: usize) -> Result<Bytes> {
        if padded(size) > self.rest.len() {
            return Err(refuse("the payload is shorter than its preamble asks for"));
        }
        let mut buffer = self.rest.split_to(padded(size));
        buffer.truncate(size);
        Ok(buffer)
    }

    /// Reads a column of n items with so many bytes in all.
    fn column(&mut self, name: &str, n: usize, size: usize, nulls: bool) -> Result<ReadColumn> {
        let valid = if nulls { Some(self.take(n.div_ceil(8))?) } else { None };
        let ends = self.offsets(name, n, size)?;
        Ok(ReadColumn { valid, ends, data: self.take(size)? })
    }

    /// Reads n + 1 offsets, which must rise from 0 to `end`.
    fn offsets(&mut self, name: &str, n: usize, end: usize) -> Result<Bytes> {
        let raw = self.take(4 * (n + 1))?;
        let mut before = 0;
        for (row, bytes) in raw.chunks_exact(4).enumerate() {
            let offset = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            if offset < before || row == 0 && offset != 0 {
                return Err(refuse(format!("{name} offsets do not rise from 0 to {end}")));
            }
            before = offset;
        }
        if before as usize != end {
            return Err(refuse(format!("{name} offsets do not rise from 0 to {end}")));
        }
        Ok(raw)
    }
}

fn number_at(raw: &[u8], row: usize) -> usize {
    let at = 4 * row;
    u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]) as usize
}

struct ReadColumn {
    valid: Option<Bytes>,
    ends: Bytes,
    data: Bytes,
}

impl ReadColumn {
    /// Returns an item, `None` for a null. Its memory is the payload's.
    fn at(&self, row: usize) -> Option<Bytes> {
        if self.valid.as_ref().is_some_and(|bits| (bits[row / 8] >> (row % 8)) & 1 == 0) {
            return None;
        }
        Some(self.data.slice(number_at(&self.ends, row)..number_at(&self.ends, row + 1)))
    }
}

/// The columns of a payload, all checked.
pub(crate) struct Decoded {
    values: ReadColumn,
    keys: Option<ReadColumn>,
    timestamps: Bytes,
    headers: Option<ReadHeaders>,
}

struct ReadHeaders {
    ends: Bytes,
    keys: ReadColumn,
    values: ReadColumn,
}

fn preamble(payload: &[u8], count: usize) -> Result<[usize; 7]> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(refuse(format!(
            "{} bytes are over the limit {MAX_PAYLOAD_BYTES}",
            payload.len()
        )));
    }
    if payload.len() < PREAMBLE_BYTES || &payload[..4] != MAGIC {
        return Err(refuse("the payload does not begin with a preamble"));
    }
    let numbers: [usize; 7] = std::array::from_fn(|i| number_at(payload, i + 1));
    let [flags, n, h, _, keys, header_keys, header_values] = numbers;
    let has = |flag: u32| flags & flag as usize != 0;
    if numbers.iter().any(|number| *number > MAX_PAYLOAD_BYTES) {
        return Err(refuse(format!(
            "the preamble's lengths are over the limit {MAX_PAYLOAD_BYTES}"
        )));
    }
    if flags & !(ALL_FLAGS as usize) != 0 {
        return Err(refuse(format!("unknown flags {flags:#x}")));
    }
    if n == 0 {
        return Err(refuse("the payload holds no records"));
    }
    if n != count {
        return Err(refuse(format!("the payload holds {n} records, its header says {count}")));
    }
    if !has(KEYS) && (keys > 0 || has(KEY_VALIDITY)) {
        return Err(refuse("keys without the flag for keys"));
    }
    let some = h > 0 || header_keys > 0 || header_values > 0 || has(HEADER_VALUE_VALIDITY);
    if !has(HEADERS) && some {
        return Err(refuse("headers without the flag for headers"));
    }
    Ok(numbers)
}

impl Decoded {
    /// Refuses all but exactly a payload of `count` records.
    pub(crate) fn new(payload: Bytes, count: usize) -> Result<Self> {
        let [flags, n, h, values, keys, header_keys, header_values] = preamble(&payload, count)?;
        let has = |flag: u32| flags & flag as usize != 0;
        let mut reader = Reader { rest: payload.slice(PREAMBLE_BYTES..) };
        let values = reader.column("value", n, values, has(VALUE_VALIDITY))?;
        let keys = match has(KEYS) {
            true => Some(reader.column("key", n, keys, has(KEY_VALIDITY))?),
            false => None,
        };
        let timestamps = reader.take(8 * n)?;
        let headers = match has(HEADERS) {
            true => Some(ReadHeaders {
                ends: reader.offsets("header", n, h)?,
                keys: reader.column("header key", h, header_keys, false)?,
                values: reader.column(
                    "header value",
                    h,
                    header_values,
                    has(HEADER_VALUE_VALIDITY),
                )?,
            }),
            false => None,
        };
        if !reader.rest.is_empty() {
            return Err(refuse(format!(
                "the payload has {} bytes more than its preamble asks for",
                reader.rest.len()
            )));
        }
        let decoded = Self { values, keys, timestamps, headers };
        decoded.check_header_keys(h)?;
        Ok(decoded)
    }

    fn check_header_keys(&self, h: usize) -> Result<()> {
        let Some(headers) = &self.headers else { return Ok(()) };
        for row in 0..h {
            let key = headers.keys.at(row).unwrap_or_default();
            if std::str::from_utf8(&key).is_err() {
                return Err(refuse("a header key is not UTF-8"));
            }
        }
        Ok(())
    }

    /// Whether compaction has removed the record, in a batch that it made.
    pub(crate) fn is_blank(&self, row: usize) -> bool {
        let has_key = self.keys.as_ref().is_some_and(|keys| keys.at(row).is_some());
        !has_key && self.values.at(row).is_none()
    }

    /// Returns the record of a row.
    pub(crate) fn record(&self, topic: &Arc<str>, partition: i32, base: i64, row: usize) -> Record {
        let mut stamp = [0; 8];
        stamp.copy_from_slice(&self.timestamps[8 * row..8 * row + 8]);
        let mut headers = vec![];
        if let Some(read) = &self.headers {
            for at in number_at(&read.ends, row)..number_at(&read.ends, row + 1) {
                let key = read.keys.at(at).unwrap_or_default();
                headers.push(Header {
                    key: String::from_utf8_lossy(&key).into_owned(),
                    value: read.values.at(at),
                });
            }
        }
        Record {
            topic: topic.clone(),
            partition,
            offset: base + row as i64,
            timestamp_us: i64::from_le_bytes(stamp),
            value: self.values.at(row),
            key: self.keys.as_ref().and_then(|keys| keys.at(row)),
            headers,
        }
    }
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
