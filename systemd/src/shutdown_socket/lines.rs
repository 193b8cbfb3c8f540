//! A connection, read and written line by line.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{VERSION, Versioned};

/// No line is longer, in bytes.
const LONGEST: u64 = 64 * 1024;

pub(crate) struct Lines(BufReader<UnixStream>);

/// Why a line was not read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The connection broke.
    #[error(transparent)]
    Lost(#[from] io::Error),
    /// The line is none of the protocol's.
    #[error("{0}")]
    Malformed(String),
}

// === impl Lines ===

impl Lines {
    pub(crate) fn of(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) fn into_stream(self) -> UnixStream {
        self.0.into_inner()
    }

    pub(crate) async fn write(&mut self, line: &impl Serialize) -> Result<(), LineError> {
        let line = Versioned { api_version: VERSION.to_owned(), line };
        let mut text =
            serde_json::to_vec(&line).map_err(|error| LineError::Malformed(error.to_string()))?;
        text.push(b'\n');
        Ok(self.0.write_all(&text).await?)
    }

    /// The next line; none if the other side closed the connection. Not cancel-safe.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LineError> {
        let mut text = Vec::new();
        (&mut self.0).take(LONGEST).read_until(b'\n', &mut text).await?;
        if text.is_empty() {
            return Ok(None);
        }
        let malformed = |error: serde_json::Error| LineError::Malformed(error.to_string());
        // First, because of another version not even the kinds of lines are known.
        let Versioned { api_version, .. }: Versioned<serde::de::IgnoredAny> =
            serde_json::from_slice(&text).map_err(malformed)?;
        if api_version != VERSION {
            let problem = format!("apiVersion {api_version:?} is not {VERSION}");
            return Err(LineError::Malformed(problem));
        }
        let Versioned { line, .. } = serde_json::from_slice(&text).map_err(malformed)?;
        Ok(Some(line))
    }

    /// Resolves when the other side has closed the connection, or says what it has no reason to say.
    pub(crate) async fn closed(&mut self) {
        // Either way it is no lock of the protocol's any more.
        let _ = self.0.read_u8().await;
    }
}
