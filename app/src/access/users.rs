//! Users of the console: the list, and the forms that change it.

use std::collections::BTreeSet;

use leptos::{ev, prelude::*};
use osb_protocol::identity::User;

use super::{
    PasswordForm, UserChangeForm, UserForm, api, confirm::Confirm, role_field::RoleField,
    shown::Shown,
};
use crate::{
    form::{self, Progress, TextField},
    ui::{Age, ColumnTitle, Icon, TableHead},
    view::UserEntry,
};

/// Titles of the columns of users.
const TITLES: &[ColumnTitle] = &[
    ColumnTitle::new("Name"),
    ColumnTitle::new("Role"),
    ColumnTitle::new("Tenant"),
    ColumnTitle::new("Last seen"),
    ColumnTitle::new("Status"),
    ColumnTitle::new("Actions").hidden(),
];
/// Id of the suggested tenants.
pub(super) const TENANTS: &str = "tenants";

/// What a field of a tenant means.
pub(super) fn tenant_help(needs_tenant: bool) -> &'static str {
    match needs_tenant {
        true => "The tenant that it is limited to. Empty for the role service_admin only.",
        false => "Limits it to the sandboxes of one tenant. Empty: all sandboxes.",
    }
}

/// The tenants of all accounts.
fn tenants(shown: Shown) -> BTreeSet<String> {
    let view = shown.view.read();
    let Ok(accounts) = &view.accounts else {
        return BTreeSet::new();
    };
    let of_users = accounts.users.iter().map(|entry| &entry.user.tenant);
    let of_keys = accounts.keys.iter().map(|key| &key.tenant);
    of_users.chain(of_keys).flatten().cloned().collect()
}

/// Suggestions for fields of a tenant.
#[component]
pub(super) fn Tenants(shown: Shown) -> impl IntoView {
    let option = |tenant: String| view! { <option value=tenant></option> };
    view! {
        <datalist id=TENANTS>
            {move || tenants(shown).into_iter().map(option).collect_view()}
        </datalist>
    }
    .into_any()
}

/// The section about users.
#[component]
pub(super) fn UsersSection(shown: Shown, needs_tenant: bool) -> impl IntoView {
    let users = Memo::new(move |_| {
        let view = shown.view.read();
        let users = view.accounts.as_ref().map(|it| it.users.clone());
        users.unwrap_or_default()
    });
    let row = move |entry: UserEntry| view! { <UserRow shown entry needs_tenant /> };
    let identity = |entry: &UserEntry| {
        let user = &entry.user;
        (
            user.id.clone(),
            (user.role, user.tenant.clone(), user.disabled),
            (user.password_changed_at, entry.last_used_at),
        )
    };
    view! {
        <section id="users" class="card accounts" aria-labelledby="users-title">
            <h2 id="users-title">"Users"</h2>
            <p class="help">"People who sign in to this console with a name and a password."</p>
            <NewUserForm shown needs_tenant />
            <Show
                when=move || !users.read().is_empty()
                fallback=|| {
                    view! { <p class="none">"No users yet: everyone signs in with an API key."</p> }
                }
            >
                <table class="account-table">
                    <TableHead of=TITLES />
                    <tbody>
                        <For each=move || users.get() key=identity children=row />
                    </tbody>
                </table>
            </Show>
        </section>
    }
    .into_any()
}

#[component]
fn NewUserForm(shown: Shown, needs_tenant: bool) -> impl IntoView {
    let progress = Progress::new();
    let submit = move |event: ev::SubmitEvent| {
        let Some(sent) = form::read::<UserForm>(&event) else {
            return;
        };
        let reset = form::reset(&event);
        shown.send(progress, api::add_user(sent), move |user, toasts| {
            reset();
            toasts.good(format!("The user {} is added", user.name));
        });
    };
    view! {
        <details class="add">
            <summary class="button">
                <Icon name="plus" />
                "Add a user"
            </summary>
            <form method="post" action="/console/access/users" class="add-form" on:submit=submit>
                <TextField
                    id="user-name".to_owned()
                    label="Name"
                    name="name"
                    progress
                    required=true
                    help="To sign in with: a-z 0-9 . _ @ -"
                />
                <TextField
                    id="user-password".to_owned()
                    label="Password"
                    name="password"
                    kind="password"
                    progress
                    required=true
                    help="At least 12 characters."
                />
                <RoleField id="user-role".to_owned() progress />
                <TextField
                    id="user-tenant".to_owned()
                    label="Tenant"
                    name="tenant"
                    progress
                    list=TENANTS
                    help=tenant_help(needs_tenant)
                />
                <p class="add-foot">
                    <button
                        type="submit"
                        class="button primary"
                        disabled=move || progress.busy.get()
                    >
                        "Add the user"
                    </button>
                </p>
            </form>
        </details>
    }
    .into_any()
}

#[component]
fn UserRow(shown: Shown, entry: UserEntry, needs_tenant: bool) -> impl IntoView {
    let UserEntry { user, last_used_at } = entry;
    let seen = match last_used_at {
        Some(at) => view! { <Age at=at /> " ago" }.into_any(),
        None => "no open session".into_any(),
    };
    let (tone, icon, word) = match user.disabled {
        true => ("quiet", "circle-stop", "Disabled"),
        false => ("good", "circle-check", "May sign in"),
    };
    let tenant = user.tenant.clone().unwrap_or_else(|| "all".to_owned());
    let is_you = shown.view.read_untracked().you.id == user.id;
    view! {
        <tr>
            <th scope="row">
                <span class="account-name">{user.name.clone()}</span>
                {is_you.then_some(" (you)")}
            </th>
            <td data-label="Role" class="mono">{user.role.as_str()}</td>
            <td data-label="Tenant">{tenant}</td>
            <td data-label="Last seen">{seen}</td>
            <td data-label="Status">
                <span class="badge" data-tone=tone>
                    <Icon name=icon />
                    <span>{word}</span>
                </span>
            </td>
            <td class="account-acts">
                <ChangeUser shown user=user.clone() needs_tenant />
                <SetPassword shown user=user.clone() />
                <DeleteUser shown user is_you />
            </td>
        </tr>
    }
    .into_any()
}

#[component]
fn ChangeUser(shown: Shown, user: User, needs_tenant: bool) -> impl IntoView {
    let progress = Progress::new();
    let id = user.id.clone();
    let submit = move |event: ev::SubmitEvent| {
        let Some(sent) = form::read::<UserChangeForm>(&event) else {
            return;
        };
        let call = api::change_user(id.clone(), sent);
        shown.send(progress, call, |user, toasts| {
            toasts.good(format!("The user {} is changed", user.name));
        });
    };
    view! {
        <details class="confirm" name="confirm">
            <summary class="button" aria-label=format!("Change {}", user.name)>
                "Change"
            </summary>
            <form
                method="post"
                action=format!("/console/access/users/{}/change", user.id)
                class="card confirm-card"
                on:submit=submit
            >
                <RoleField id=format!("role-{}", user.id) progress chosen=user.role />
                <TextField
                    id=format!("tenant-{}", user.id)
                    label="Tenant"
                    name="tenant"
                    value=user.tenant.clone().unwrap_or_default()
                    progress
                    list=TENANTS
                    help=tenant_help(needs_tenant)
                />
                <p class="choices">
                    <label>
                        <input
                            type="checkbox"
                            name="disabled"
                            value="true"
                            checked=user.disabled
                        />
                        "May not sign in; open sessions end"
                    </label>
                </p>
                <button type="submit" class="button primary" disabled=move || progress.busy.get()>
                    "Save"
                </button>
            </form>
        </details>
    }
    .into_any()
}

#[component]
fn SetPassword(shown: Shown, user: User) -> impl IntoView {
    let progress = Progress::new();
    let id = user.id.clone();
    let submit = move |event: ev::SubmitEvent| {
        let Some(sent) = form::read::<PasswordForm>(&event) else {
            return;
        };
        let reset = form::reset(&event);
        let call = api::set_password(id.clone(), sent);
        shown.send(progress, call, move |user, toasts| {
            reset();
            toasts.good(format!("{} has a new password", user.name));
        });
    };
    view! {
        <details class="confirm" name="confirm">
            <summary class="button" aria-label=format!("Password of {}", user.name)>
                "Password"
            </summary>
            <form
                method="post"
                action=format!("/console/access/users/{}/password", user.id)
                class="card confirm-card"
                on:submit=submit
            >
                <TextField
                    id=format!("password-{}", user.id)
                    label="New password"
                    name="password"
                    kind="password"
                    progress
                    required=true
                    help="At least 12 characters. The sessions of the user end."
                />
                <button type="submit" class="button primary" disabled=move || progress.busy.get()>
                    "Set password"
                </button>
            </form>
        </details>
    }
    .into_any()
}

#[component]
fn DeleteUser(shown: Shown, user: User, is_you: bool) -> impl IntoView {
    let progress = Progress::new();
    let name = StoredValue::new(user.name.clone());
    let id = StoredValue::new(user.id.clone());
    let act = move |()| {
        shown.send(
            progress,
            api::delete_user(id.get_value()),
            move |(), toasts| {
                toasts.good(format!("The user {} is deleted", name.get_value()));
            },
        );
    };
    let yours = match is_you {
        true => " It is your own account: you will be signed out.",
        false => "",
    };
    view! {
        <Confirm
            opener="Delete"
            label=format!("Delete {}", user.name)
            question=format!(
                "Delete {}? The sessions of the user end. Sandboxes stay.{yours}",
                user.name,
            )
            button="Delete user"
            action=format!("/console/access/users/{}/delete", user.id)
            busy=progress.busy
            act=act
        />
    }
    .into_any()
}
