//! Reads and writes a connection line by line.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::{VERSION, Versioned};

/// The longest line, in bytes.
const MAX_LINE_BYTES: u64 = 64 * 1024;

pub(crate) struct SocketLines(BufReader<UnixStream>);

/// Why a line could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketLineError {
    /// The connection broke.
    #[error(transparent)]
    Lost(#[from] io::Error),
    /// The line does not belong to the protocol.
    #[error("{0}")]
    Malformed(String),
}

// === impl SocketLines ===

impl SocketLines {
    pub(crate) fn of(stream: UnixStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) fn into_stream(self) -> UnixStream {
        self.0.into_inner()
    }

    pub(crate) async fn write(&mut self, line: &impl Serialize) -> Result<(), SocketLineError> {
        let line = Versioned { api_version: VERSION.to_owned(), line };
        let mut text = serde_json::to_vec(&line)
            .map_err(|error| SocketLineError::Malformed(error.to_string()))?;
        text.push(b'\n');
        Ok(self.0.write_all(&text).await?)
    }

    /// Reads the next line; `None` if the peer closed the connection. Not cancel-safe.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, SocketLineError> {
        let mut text = Vec::new();
        (&mut self.0).take(MAX_LINE_BYTES).read_until(b'\n', &mut text).await?;
        if text.is_empty() {
            return Ok(None);
        }
        let malformed = |error: serde_json::Error| SocketLineError::Malformed(error.to_string());
        // Check the version first: the kinds of lines of other versions are unknown.
        let Versioned { api_version, .. }: Versioned<serde::de::IgnoredAny> =
            serde_json::from_slice(&text).map_err(malformed)?;
        if api_version != VERSION {
            let problem = format!("apiVersion {api_version:?} is not {VERSION}");
            return Err(SocketLineError::Malformed(problem));
        }
        let Versioned { line, .. } = serde_json::from_slice(&text).map_err(malformed)?;
        Ok(Some(line))
    }

    /// Resolves when the peer has closed the connection, or sends anything unexpected.
    pub(crate) async fn closed(&mut self) {
        // In either case it is no longer a valid lock.
        let _ = self.0.read_u8().await;
    }
}
