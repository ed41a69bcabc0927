//! Codecs and the checksum. What is unpacked is bounded, whatever a frame claims.

use std::io::{Read, Write};

use bytes::Bytes;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};

use crate::errors::{Error, ErrorKind, Result};
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

fn damaged(codec: &str, problem: impl std::fmt::Display) -> Error {
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
            one_frame("zstd", decoder.finish(), payload)
        }
        // To this decoder no frame at all is an empty one.
        Ok(pb::Codec::Lz4) if data.is_empty() => Err(damaged("lz4", "there is no frame")),
        Ok(pb::Codec::Lz4) => {
            let mut rest = &data[..];
            let payload = read_all("lz4", data.len(), &mut FrameDecoder::new(&mut rest))?;
            one_frame("lz4", rest, payload)
        }
        Err(_) => Err(Error::new(ErrorKind::InvalidBatch, format!("unknown codec {codec}"))),
    }
}

fn read_all(codec: &str, packed: usize, decoder: &mut impl Read) -> Result<Vec<u8>> {
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

fn one_frame(codec: &str, rest: &[u8], payload: Vec<u8>) -> Result<Bytes> {
    if !rest.is_empty() {
        return Err(damaged(codec, "it is not exactly one frame"));
    }
    Ok(payload.into())
}
