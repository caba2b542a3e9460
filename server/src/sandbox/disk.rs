//! Sizes of writable layers, measured while a quota needs them. An engine walks the files of each
//! layer for that, so it is asked rarely.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use osb_service::ErrorChain;
use tracing::{info, warn};

use super::{RuntimeHealth, Service, quota::LayerSizes};

/// Pause between measurements.
const PERIOD: Duration = Duration::from_secs(60);

/// The last measurement; `None` before the first one.
#[derive(Debug, Default)]
pub(super) struct Layers(RwLock<Option<Arc<LayerSizes>>>);

impl Layers {
    pub(super) fn sizes(&self) -> Option<Arc<LayerSizes>> {
        // Replaced whole, so a panic elsewhere does not spoil it.
        let sizes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        sizes.clone()
    }

    fn replace(&self, sizes: LayerSizes) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sizes));
    }
}

pub(super) fn start(service: Service) {
    if !service.inner.limits.quotas.limit_disk() {
        return;
    }
    if service.inner.runtime.metering().is_none() {
        let runtime = service.inner.runtime.kind();
        warn!(
            runtime,
            "quotas for disk have no effect: the runtime cannot measure it"
        );
        return;
    }
    let tasks = service.inner.tasks.clone();
    tasks.spawn_abortable("disk use", async move {
        let mut health = service.inner.registry.watch_health();
        let mut is_failing = false;
        loop {
            let up = |health: &RuntimeHealth| *health == RuntimeHealth::Up;
            if health.wait_for(up).await.is_err() {
                return;
            }
            let Some(metering) = service.inner.runtime.metering() else {
                return;
            };
            match metering.read_layer_sizes().await {
                Ok(sizes) => {
                    service.inner.layers.replace(sizes);
                    if std::mem::take(&mut is_failing) {
                        info!("the disk use of sandboxes is measured again");
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        warn!(error = %ErrorChain(&error), "the disk use of sandboxes is not measured; quotas use the last sizes");
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    });
}
