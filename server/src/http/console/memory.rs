//! What the rendering of one page has read.
//!
//! The server renders what waits for data several times, and asks for the data each time. The browser
//! takes over the last rendering with the data of the first one, so all of them have to be the same:
//! otherwise it finds other elements than it expects, and the page stays without script.

use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::OnceCell;

type Cell = Arc<OnceCell<Box<dyn Any + Send + Sync>>>;

/// Remembers reads by their names. Clones share what they remember; the default remembers nothing.
#[derive(Clone, Default)]
pub(super) struct Memory(Option<Arc<Mutex<HashMap<String, Cell>>>>);

impl Memory {
    /// For one request.
    pub(super) fn of_request() -> Self {
        Self(Some(Arc::default()))
    }

    /// Reads, unless that was done before. A name stands for one type.
    pub(super) async fn once<T: Clone + Send + Sync + 'static>(
        &self,
        name: String,
        read: impl Future<Output = T> + Send,
    ) -> T {
        let Some(cells) = &self.0 else {
            return read.await;
        };
        let cell = {
            // Whole after every operation, so a panic of another holder does no harm.
            let mut cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(cells.entry(name).or_default())
        };
        let value = cell.get_or_init(async || {
            let value: Box<dyn Any + Send + Sync> = Box::new(read.await);
            value
        });
        let value = value.await.downcast_ref::<T>();
        value.expect("a name stands for one type").clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[tokio::test]
    async fn a_page_reads_once_and_the_next_page_again() {
        let reads = AtomicU32::new(0);
        let read = async || reads.fetch_add(1, Relaxed);
        let (page, next) = (Memory::of_request(), Memory::of_request());
        assert_eq!(page.once("a".into(), read()).await, 0);
        assert_eq!(page.clone().once("a".into(), read()).await, 0);
        assert_eq!(page.once("b".into(), read()).await, 1);
        assert_eq!(next.once("a".into(), read()).await, 2);
        let none = Memory::default();
        assert_eq!(none.once("a".into(), read()).await, 3);
        assert_eq!(none.once("a".into(), read()).await, 4);
    }
}
