//! Log of a background command, readable at any offset (contract: execd §5.7).

use std::{fs::File, os::unix::fs::FileExt, sync::Arc, sync::Mutex};

use bytes::Bytes;
use tracing::warn;

use super::OutputUsage;
use crate::{limits, scratch};

/// Merged standard output and error of one command. A short log stays in memory.
#[derive(Debug)]
pub(crate) struct Log {
    state: Mutex<State>,
    max: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self::bounded(limits::SPILL)
    }
}

#[derive(Debug, Default)]
struct State {
    memory: Vec<u8>,
    file: Option<Arc<File>>,
    len: u64,
    full: bool,
}

/// Line that ends a log at its limit.
const FULL: &[u8] = b"\n[execd: the output is longer than what is kept; the rest is missing]\n";

impl Log {
    /// Creates a log with a limit in bytes.
    pub(crate) fn bounded(max: u64) -> Self {
        let state = Mutex::default();
        Self { state, max }
    }

    /// Truncates the log to `len` bytes and closes it. Must not run during an append.
    pub(crate) fn cut(&self, len: u64) {
        let mut state = self.state();
        state.full = true;
        if state.len <= len {
            return;
        }
        state.len = len;
        state
            .memory
            .truncate(usize::try_from(len).unwrap_or(usize::MAX));
        if let Some(Err(error)) = state.file.as_ref().map(|file| file.set_len(len)) {
            warn!(%error, "truncating a log failed");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.state().len
    }

    /// Resource use of the log.
    pub(crate) fn usage(&self) -> OutputUsage {
        let state = self.state();
        let memory = state.memory.len() as u64;
        OutputUsage {
            memory,
            disk: state.len - memory.min(state.len),
            files: usize::from(state.file.is_some()),
        }
    }

    /// Appends output. Callers must not overlap.
    pub(crate) async fn append(&self, bytes: Bytes) {
        let (file, offset, bytes) = {
            let mut state = self.state();
            if state.full {
                return;
            }
            let mut bytes = bytes;
            if state.len + bytes.len() as u64 > self.max {
                state.full = true;
                bytes = Bytes::from_static(FULL);
            }
            if state.file.is_none() && state.memory.len() + bytes.len() <= limits::LOG_MEMORY {
                state.memory.extend_from_slice(&bytes);
                state.len += bytes.len() as u64;
                return;
            }
            match state.on_disk() {
                Ok(file) => (file, state.len, bytes),
                Err(error) => {
                    warn!(%error, "output dropped");
                    state.full = true;
                    return;
                }
            }
        };
        let len = bytes.len() as u64;
        let write = tokio::task::spawn_blocking(move || file.write_all_at(&bytes, offset));
        match write.await.unwrap_or_else(|error| Err(error.into())) {
            Ok(()) => self.state().len += len,
            Err(error) => {
                warn!(%error, "output dropped");
                self.state().full = true;
            }
        }
    }

    /// Reads at most [`limits::SPILL_READ`] bytes between two offsets. Empty at the end.
    pub(crate) async fn read(&self, from: u64, to: u64) -> std::io::Result<Bytes> {
        let file = {
            let state = self.state();
            let to = to.min(state.len);
            if from >= to {
                return Ok(Bytes::new());
            }
            match &state.file {
                Some(file) => Arc::clone(file),
                None => {
                    let range = usize::try_from(from).expect("in memory")
                        ..usize::try_from(to).expect("in memory");
                    return Ok(Bytes::copy_from_slice(&state.memory[range]));
                }
            }
        };
        let bounded = (to - from).min(limits::SPILL_READ as u64);
        let wanted = usize::try_from(bounded).expect("bounded above");
        let read = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; wanted];
            file.read_exact_at(&mut buffer, from).map(|()| buffer)
        });
        Ok(Bytes::from(
            read.await.unwrap_or_else(|error| Err(error.into()))?,
        ))
    }
}

impl State {
    fn on_disk(&mut self) -> std::io::Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(scratch::file()?);
        file.write_all_at(&self.memory, 0)?;
        self.memory = Vec::new();
        Ok(Arc::clone(self.file.insert(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn offsets_stay_valid_after_a_log_moves_to_disk() {
        let log = Log::default();
        let mut want = Vec::new();
        for index in 0..50u8 {
            let piece = vec![index; 4000];
            want.extend_from_slice(&piece);
            log.append(Bytes::from(piece)).await;
            assert_eq!(log.len(), want.len() as u64);
            let from = want.len() - 4500usize.min(want.len());
            let got = log.read(from as u64, log.len()).await.unwrap();
            assert_eq!(got, want[from..]);
        }
        assert!(log.state().file.is_some());
        assert!(log.read(log.len(), u64::MAX).await.unwrap().is_empty());
        assert!(log.read(u64::MAX, u64::MAX).await.unwrap().is_empty());
    }
}
