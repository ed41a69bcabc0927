//! Codecs and the checksum. Unpacked bytes are bounded, even if a frame claims more.

use std::io::{Read, Write};

use bytes::Bytes;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};

use crate::errors::{Error, ErrorKind, Result};
use crate::kafka_batch;
use crate::payload::MAX_PAYLOAD_BYTES;
use crate::pb;

/// How payloads are compressed on their way and in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Payloads are sent as they are.
    #[default]
    None,
    /// Compresses most.
    Zstd,
    /// Costs least.
    Lz4,
}

impl Compression {
    /// The setting's name in all clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
        }
    }

    pub(crate) fn codec(self) -> pb::Codec {
        match self {
            Self::None => pb::Codec::None,
            Self::Zstd => pb::Codec::Zstd,
            Self::Lz4 => pb::Codec::Lz4,
        }
    }

    /// Compresses a payload into one frame.
    pub(crate) fn compress(self, level: Option<i32>, payload: Vec<u8>) -> std::io::Result<Bytes> {
        Ok(match self {
            Self::None => payload.into(),
            Self::Zstd => {
                zstd::bulk::compress(&payload, level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL))?
                    .into()
            }
            Self::Lz4 => {
                let mut encoder = FrameEncoder::new(Vec::with_capacity(payload.len() / 2));
                encoder.write_all(&payload)?;
                encoder.finish()?.into()
            }
        })
    }
}

/// CRC-32C.
pub(crate) fn checksum(payload: &[u8]) -> u32 {
    crc32c::crc32c(payload)
}

pub(crate) fn damaged(codec: &str, problem: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidBatch, format!("{codec} payload is damaged: {problem}"))
}

/// A frame may ask for a window of so many bytes, as 2's logarithm, and no more.
const MAX_WINDOW_LOG: u32 = 27;

/// Returns the payload of a batch as it is stored.
pub(crate) fn decompress(codec: i32, data: &Bytes) -> Result<Bytes> {
    match pb::Codec::try_from(codec) {
        Ok(pb::Codec::None) => Ok(data.clone()),
        Ok(pb::Codec::Zstd) => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(&data[..])
                .map_err(|e| damaged("zstd", e))?
                .single_frame();
            decoder.window_log_max(MAX_WINDOW_LOG).map_err(|e| damaged("zstd", e))?;
            let payload = read_all("zstd", data.len(), &mut decoder)?;
            if !decoder.finish().is_empty() {
                return Err(damaged("zstd", "it is not exactly one frame"));
            }
            Ok(payload.into())
        }
        Ok(pb::Codec::Lz4) => {
            if lz4_frame_bytes(data) != Some(data.len()) {
                return Err(damaged("lz4", "it is not exactly one frame"));
            }
            Ok(read_all("lz4", data.len(), &mut FrameDecoder::new(&data[..]))?.into())
        }
        Ok(pb::Codec::KafkaV2) => kafka_batch::to_columns(data),
        Err(_) => Err(Error::new(ErrorKind::InvalidBatch, format!("unknown codec {codec}"))),
    }
}

pub(crate) fn read_all(codec: &str, packed: usize, decoder: &mut impl Read) -> Result<Vec<u8>> {
    let mut payload = Vec::with_capacity((packed * 2).min(MAX_PAYLOAD_BYTES));
    decoder
        .take(MAX_PAYLOAD_BYTES as u64 + 1)
        .read_to_end(&mut payload)
        .map_err(|e| damaged(codec, e))?;
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(damaged(
            codec,
            format!("it unpacks to more than the limit {MAX_PAYLOAD_BYTES}"),
        ));
    }
    Ok(payload)
}

/// How long an lz4 frame is by its own words; `None`: it is cut off. The decoder takes a frame
/// without an end for a whole one, so this is found out before.
fn lz4_frame_bytes(data: &[u8]) -> Option<usize> {
    const MAGIC: u32 = 0x184d_2204;
    const CONTENT_SIZE: u8 = 8;
    const DICTIONARY: u8 = 1;
    const BLOCK_CHECKSUMS: u8 = 16;
    const CONTENT_CHECKSUM: u8 = 4;
    let number = |at: usize| {
        let bytes = data.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    if number(0)? != MAGIC {
        return None;
    }
    let flags = *data.get(4)?;
    let with = |flag: u8, size: usize| if flags & flag != 0 { size } else { 0 };
    let mut at = 7 + with(CONTENT_SIZE, 8) + with(DICTIONARY, 4);
    loop {
        let block = number(at)?;
        at += 4;
        if block == 0 {
            return Some(at + with(CONTENT_CHECKSUM, 4));
        }
        at += (block & 0x7fff_ffff) as usize + with(BLOCK_CHECKSUMS, 4);
    }
}
