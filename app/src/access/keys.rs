//! API keys: the list, and the form that makes one.

use leptos::{ev, prelude::*};
use osb_protocol::identity::{ApiKey, IssuedApiKey, Role};

use super::{
    KeyForm, api,
    confirm::Confirm,
    forms::LIFETIMES,
    issued::{ISSUED, Issued, IssuedKey},
    role_field::RoleField,
    shown::Shown,
    users::{TENANTS, tenant_help},
};
use crate::{
    browser,
    form::{self, Field, Progress, TextField},
    query_string::use_query,
    ui::{Age, Clock, ColumnTitle, Icon, TableHead, When},
};

/// Titles of the columns of API keys.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Name"),
    ColumnTitle::new("Role"),
    ColumnTitle::new("Tenant"),
    ColumnTitle::new("Last used"),
    ColumnTitle::new("Validity"),
    ColumnTitle::new("Actions").hidden(),
];
/// Parameter of the page's URL: the id of a key to replace.
const REPLACE: &str = "replace";
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Whether a key still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    Works,
    Expired,
    Revoked,
}

fn validity(key: &ApiKey, now_ms: i64) -> Validity {
    if key.revoked_at.is_some() {
        return Validity::Revoked;
    }
    match key.expires_at {
        Some(at) if at.unix_ms() <= now_ms => Validity::Expired,
        _ => Validity::Works,
    }
}

/// The section about API keys.
#[component]
pub(super) fn KeysSection(shown: Shown, needs_tenant: bool) -> impl IntoView {
    let first = SharedValue::new(|| use_context::<Issued>().map(|Issued(issued)| issued));
    let issued = RwSignal::new(first.into_inner());
    let Clock(now) = Clock::current();
    let keys = Memo::new(move |_| {
        let view = shown.view.read();
        let keys = view.accounts.as_ref().map(|accounts| accounts.keys.clone());
        keys.unwrap_or_default()
    });
    let of = move |wanted: bool| {
        let now = now.get();
        let works = |key: &ApiKey| validity(key, now) == Validity::Works;
        let keys = keys.get().into_iter();
        keys.filter(|key| works(key) == wanted).collect::<Vec<_>>()
    };
    let params = use_query();
    let replaced = Memo::new(move |_| {
        let id = params.read().get(REPLACE)?;
        keys.read().iter().find(|key| key.id == id).cloned()
    });
    let working = Memo::new(move |_| of(true));
    let over = Memo::new(move |_| of(false));
    view! {
        <section id="keys" class="card accounts" aria-labelledby="keys-title">
            <h2 id="keys-title">"API keys"</h2>
            <p class="help">
                "For programs and SDKs. A key may do what its role allows, in its tenant, until it expires or is revoked. The key in the configuration (server.api_key) is not listed."
            </p>
            {move || issued.get().map(|issued| view! { <IssuedKey issued /> })}
            {move || view! { <NewKey shown issued needs_tenant replaced=replaced.get() /> }}
            <Show
                when=move || !working.read().is_empty()
                fallback=|| view! { <p class="none">"No key of the store works now."</p> }
            >
                <KeyTable shown keys=working />
            </Show>
            <Show when=move || !over.read().is_empty()>
                <details class="over">
                    <summary>
                        {move || format!("Revoked and expired ({})", over.read().len())}
                    </summary>
                    <KeyTable shown keys=over />
                </details>
            </Show>
        </section>
    }
    .into_any()
}

#[component]
fn NewKey(
    shown: Shown,
    issued: RwSignal<Option<IssuedApiKey>>,
    needs_tenant: bool,
    /// The key that the new one is to replace.
    replaced: Option<ApiKey>,
) -> impl IntoView {
    let progress = Progress::new();
    let is_replacement = replaced.is_some();
    let note = replaced.as_ref().map(|key| {
        view! {
            <p class="help">
                {format!(
                    "Replaces {} ({}…), which works until you revoke it: give the new key to its programs first.",
                    key.name,
                    key.prefix,
                )}
            </p>
        }
    });
    let old = replaced.as_ref();
    let days = old.and_then(lifetime_days);
    let role = old.map_or_else(Role::default, |key| key.role);
    let tenant = old.and_then(|key| key.tenant.clone()).unwrap_or_default();
    let name = replaced.map(|key| key.name).unwrap_or_default();
    let submit = move |event: ev::SubmitEvent| {
        let Some(sent) = form::read::<KeyForm>(&event) else {
            return;
        };
        let reset = form::reset(&event);
        issued.set(None);
        shown.send(progress, api::add_key(sent), move |made, _| {
            reset();
            issued.set(Some(made));
            browser::focus_when_shown(ISSUED);
        });
    };
    let chosen = days.unwrap_or("30");
    let lifetimes = LIFETIMES.map(|(value, words)| {
        view! {
            <option value=value selected=value == chosen>
                {words}
            </option>
        }
    });
    view! {
        <details class="add" open=move || is_replacement || issued.read().is_some()>
            <summary class="button">
                <Icon name="plus" />
                "Make a key"
            </summary>
            <form method="post" action="/console/access" class="add-form" on:submit=submit>
                {note}
                <TextField
                    id="key-name".to_owned()
                    label="Name"
                    name="name"
                    progress
                    value=name
                    required=true
                    help="What it is for, such as: nightly build."
                />
                <RoleField id="key-role".to_owned() progress chosen=role />
                <TextField
                    id="key-tenant".to_owned()
                    label="Tenant"
                    name="tenant"
                    progress
                    value=tenant
                    list=TENANTS
                    help=tenant_help(needs_tenant)
                />
                <Field
                    id="key-days".to_owned()
                    label="Expires after"
                    name="expiresAt"
                    progress
                >
                    <select id="key-days" name="days">
                        {lifetimes.collect_view()}
                    </select>
                </Field>
                <p class="add-foot">
                    <button
                        type="submit"
                        class="button primary"
                        disabled=move || progress.busy.get()
                    >
                        "Make the key"
                    </button>
                </p>
            </form>
        </details>
    }
    .into_any()
}

/// The offered lifetime that is nearest to that of a key.
fn lifetime_days(key: &ApiKey) -> Option<&'static str> {
    let Some(expires_at) = key.expires_at else {
        return Some("");
    };
    let days = (expires_at.unix_ms() - key.created_at.unix_ms()) / DAY_MS;
    let offered = LIFETIMES.iter().filter_map(|(value, _)| {
        let number: i64 = value.parse().ok()?;
        Some(((number - days).abs(), *value))
    });
    offered.min().map(|(_, value)| value)
}

#[component]
fn KeyTable(shown: Shown, keys: Memo<Vec<ApiKey>>) -> impl IntoView {
    let row = move |key: ApiKey| view! { <KeyRow shown key /> };
    let identity = |key: &ApiKey| (key.id.clone(), key.revoked_at, key.last_used_at);
    view! {
        <table class="account-table">
            <TableHead of=TITLES />
            <tbody>
                <For each=move || keys.get() key=identity children=row />
            </tbody>
        </table>
    }
    .into_any()
}

#[component]
fn KeyRow(shown: Shown, key: ApiKey) -> impl IntoView {
    let Clock(now) = Clock::current();
    let state = validity(&key, now.get_untracked());
    let used = match key.last_used_at {
        Some(at) => view! { <Age at=at /> " ago" }.into_any(),
        None => "never".into_any(),
    };
    let validity = match (state, key.revoked_at.or(key.expires_at)) {
        (Validity::Works, None) => "no expiry".into_any(),
        (Validity::Works, Some(at)) => view! { "until " <When at=at /> }.into_any(),
        (Validity::Revoked, Some(at)) => view! { "revoked " <When at=at /> }.into_any(),
        (_, Some(at)) => view! { "expired " <When at=at /> }.into_any(),
        (_, None) => ().into_any(),
    };
    let tenant = key.tenant.clone().unwrap_or_else(|| "all".to_owned());
    let replace = format!("/console/access?{REPLACE}={}#keys", key.id);
    let label = format!("Replace {}", key.name);
    let acts = (state == Validity::Works).then(|| {
        view! {
            <a class="button" href=replace aria-label=label>
                "Replace"
            </a>
            <RevokeKey shown key=key.clone() />
        }
    });
    view! {
        <tr>
            <th scope="row">
                <span class="account-name">{key.name.clone()}</span>
                <span class="fine mono">{format!("{}…", key.prefix)}</span>
            </th>
            <td data-label="Role" class="mono">{key.role.as_str()}</td>
            <td data-label="Tenant">{tenant}</td>
            <td data-label="Last used">{used}</td>
            <td data-label="Validity">{validity}</td>
            <td class="account-acts">{acts}</td>
        </tr>
    }
    .into_any()
}

#[component]
fn RevokeKey(shown: Shown, key: ApiKey) -> impl IntoView {
    let progress = Progress::new();
    let name = StoredValue::new(key.name.clone());
    let id = StoredValue::new(key.id.clone());
    let act = move |()| {
        shown.send(
            progress,
            api::revoke_key(id.get_value()),
            move |(), toasts| {
                toasts.good(format!("The API key {} is revoked", name.get_value()));
            },
        );
    };
    let is_yours = shown.view.read_untracked().you.id == key.id;
    let yours = match is_yours {
        true => " You are signed in with it, and will be signed out.",
        false => "",
    };
    view! {
        <Confirm
            opener="Revoke"
            label=format!("Revoke {}", key.name)
            question=format!(
                "Revoke {}? Requests with it are refused at once, and its sessions and tunnels end. This cannot be undone.{yours}",
                key.name,
            )
            button="Revoke key"
            action=format!("/console/access/keys/{}/revoke", key.id)
            busy=progress.busy
            act=act
        />
    }
    .into_any()
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;

    #[test]
    fn a_replacement_lives_about_as_long() {
        let key = |created, expires: Option<i64>| ApiKey {
            id: "1".to_owned(),
            name: "ci".to_owned(),
            prefix: "osb_ab".to_owned(),
            role: Role::Operator,
            tenant: None,
            created_at: WireTime::from_unix_ms(created).unwrap(),
            expires_at: expires.map(|at| WireTime::from_unix_ms(at).unwrap()),
            last_used_at: None,
            revoked_at: None,
        };
        assert_eq!(lifetime_days(&key(0, None)), Some(""));
        assert_eq!(lifetime_days(&key(DAY_MS, Some(91 * DAY_MS))), Some("90"));
        assert_eq!(lifetime_days(&key(0, Some(20 * DAY_MS))), Some("30"));
        assert_eq!(lifetime_days(&key(0, Some(1_000))), Some("1"));
    }

    #[test]
    fn a_key_works_until_it_expires_or_is_revoked() {
        let at = |ms| WireTime::from_unix_ms(ms);
        let key = |expires_at, revoked_at| ApiKey {
            id: "1".to_owned(),
            name: "ci".to_owned(),
            prefix: "osb_ab".to_owned(),
            role: Role::Operator,
            tenant: None,
            created_at: at(0).unwrap(),
            expires_at,
            last_used_at: None,
            revoked_at,
        };
        assert_eq!(validity(&key(None, None), 5_000), Validity::Works);
        assert_eq!(validity(&key(at(5_001), None), 5_000), Validity::Works);
        assert_eq!(validity(&key(at(5_000), None), 5_000), Validity::Expired);
        assert_eq!(
            validity(&key(at(9_000), at(1_000)), 5_000),
            Validity::Revoked
        );
    }
}
