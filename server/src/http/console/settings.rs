//! Settings and health for their page.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use osb_app::{
    backend::SettingsBackend,
    view::{Check, CheckState, OperatorView, SettingsView, StoreView, WebhookView},
};
use osb_protocol::identity::Role;
use osb_runtime::HostCapacity;
use osb_service::ErrorChain;

use super::{
    ConsoleState,
    host_checks::{of_host, of_images},
    installation::SharedInstallation,
    memory::Memory,
    overview,
};
use crate::{
    identity::Principal,
    sandbox::{Error, Service, explain},
    webhooks::Webhooks,
};

/// Messages of a webhook that are shown.
const DELIVERIES: u32 = 3;
/// Said while another check or bundle is under way: each reads the whole store.
const BUSY: &str = "Another check or support bundle is under way. Try again shortly.";

/// [`SettingsBackend`] for one request.
pub(super) struct Settings {
    /// The domain within the scope of the caller.
    service: Service,
    webhooks: Option<Webhooks>,
    installation: Option<SharedInstallation>,
    principal: Arc<Principal>,
    memory: Memory,
}

impl Settings {
    pub(super) fn new(
        service: Service,
        webhooks: Option<Webhooks>,
        installation: Option<SharedInstallation>,
        principal: Arc<Principal>,
    ) -> Self {
        Self {
            service,
            webhooks,
            installation,
            principal,
            memory: Memory::of_request(),
        }
    }

    async fn read(&self, checks_store: bool) -> SettingsView {
        let role = self.principal.role;
        let host = match role {
            Role::ServiceAdmin => self.service.host().await,
            _ => None,
        };
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let mut checks = self.checks().await;
        checks.extend(host.iter().flat_map(|host| of_host(host, now_ms)));
        if role == Role::ServiceAdmin {
            checks.extend(self.service.image_use().await.map(of_images));
        }
        SettingsView {
            checks,
            operator: match role {
                Role::ServiceAdmin => Ok(self.operator(checks_store, host.as_ref()).await),
                _ => Err(format!(
                    "Your role is {role}: the configuration, the store, the webhooks and the support bundle are for the role service_admin."
                )),
            },
        }
    }

    async fn checks(&self) -> Vec<Check> {
        let service = &self.service;
        let check = |name: &str, result: Result<String, Error>| {
            let (state, text) = match result {
                Ok(text) => (CheckState::Good, text),
                Err(error) => {
                    let text = explain(ErrorChain(&error).to_string(), error.cause());
                    (CheckState::Bad, text)
                }
            };
            Check {
                name: name.to_owned(),
                text,
                state,
            }
        };
        let runtime = service.available();
        let store = service.store_works().await;
        let ready = service.ready().await;
        let note = ready.as_ref().ok().cloned().flatten();
        let mut checks = vec![
            check(
                "Runtime",
                runtime.map(|()| format!("{} answers.", service.runtime_kind())),
            ),
            check("Store", store.map(|()| "It takes writes.".to_owned())),
            check(
                "Readiness",
                ready.map(|_| "Sandboxes can be created.".to_owned()),
            ),
        ];
        checks.extend(note.map(|note| Check {
            name: "Readiness".to_owned(),
            text: note,
            state: CheckState::Note,
        }));
        checks
    }

    async fn operator(&self, checks_store: bool, host: Option<&HostCapacity>) -> OperatorView {
        let store = match checks_store {
            true => Some(self.check_store().await),
            false => None,
        };
        let installation = self.installation.as_ref();
        OperatorView {
            config: installation.map(|it| it.installation.config()),
            store,
            host: host.map(overview::described),
            webhooks: self.webhooks().await,
        }
    }

    async fn check_store(&self) -> Result<StoreView, String> {
        let installation = self.installation.as_ref();
        let installation = installation.ok_or("The store of this process cannot be checked.")?;
        let _one_at_a_time = installation.turn.try_lock().map_err(|_| BUSY)?;
        installation.installation.check_store().await
    }

    async fn webhooks(&self) -> Vec<WebhookView> {
        let Some(webhooks) = &self.webhooks else {
            return Vec::new();
        };
        let scope = &self.principal.scope;
        let mut views = Vec::new();
        for webhook in webhooks.list(scope) {
            let last = webhooks.deliveries(scope, &webhook.id, None, None, DELIVERIES);
            views.push(WebhookView {
                deliveries: last.await.map_err(|error| ErrorChain(&error).to_string()),
                webhook,
            });
        }
        views
    }
}

#[async_trait]
impl SettingsBackend for Settings {
    async fn settings(&self, checks_store: bool) -> SettingsView {
        let name = format!("settings/{checks_store}");
        self.memory.once(name, self.read(checks_store)).await
    }
}

/// Sends the support bundle.
pub(super) async fn bundle(State(state): State<ConsoleState>) -> Response {
    let Some(installation) = &state.domains.installation else {
        return (StatusCode::NOT_FOUND, "No support bundle.").into_response();
    };
    let Ok(_one_at_a_time) = installation.turn.try_lock() else {
        return (StatusCode::SERVICE_UNAVAILABLE, BUSY).into_response();
    };
    match installation.installation.support_bundle().await {
        Ok((name, archive)) => {
            let name = format!("attachment; filename=\"{name}\"");
            let headers = [
                (header::CONTENT_TYPE, "application/gzip"),
                (header::CONTENT_DISPOSITION, name.as_str()),
            ];
            (headers, archive).into_response()
        }
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
    }
}
