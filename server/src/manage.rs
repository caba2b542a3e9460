//! `opensandbox-server user …` and `key …`: users and API keys on the configured store, whether or not a
//! server uses it.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    sync::Arc,
};

use anyhow::{Context, bail};
use osb_protocol::{
    WireTime,
    audit::{AuditActor, AuditActorKind, AuditEntry, AuditOutcome},
    identity::{ApiKey, NewApiKey, NewUser, User},
};
use osb_service::ErrorChain;
use osb_store::{Location, Store};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use crate::{
    audit::{self, Action, facts},
    cli::{KeyCommand, UserCommand},
    identity::{
        AccountError,
        accounts::{Accounts, ChangedUser, UserEdit, in_seconds},
    },
};

/// Seconds of a day.
const DAY: i64 = 24 * 3600;

/// What the configuration says of users and keys.
#[derive(Clone, Copy, Debug)]
pub struct AccountRules {
    /// Whether the audit trail gets an entry.
    pub recorded: bool,
    /// Whether the server has tenants, so that every account but an administrator's has one.
    pub has_tenants: bool,
}

/// Manages users.
///
/// # Errors
/// When the store cannot be used or a rule is broken.
pub async fn users(
    location: &Location,
    rules: AccountRules,
    command: UserCommand,
) -> anyhow::Result<()> {
    let (store, accounts) = open(location, rules).await?;
    let mut deed = None;
    let done = change_users(&accounts, command, read_password, &mut deed).await;
    record(&*store, deed.filter(|_| rules.recorded), &done).await;
    store.close().await;
    done
}

/// Manages API keys.
///
/// # Errors
/// When the store cannot be used or a rule is broken.
pub async fn keys(
    location: &Location,
    rules: AccountRules,
    command: KeyCommand,
) -> anyhow::Result<()> {
    let (store, accounts) = open(location, rules).await?;
    let mut deed = None;
    let done = change_keys(&accounts, command, &mut deed).await;
    record(&*store, deed.filter(|_| rules.recorded), &done).await;
    store.close().await;
    done
}

/// Opens the store beside its server or, where there is none yet or its schema is older, alone.
async fn open(
    location: &Location,
    rules: AccountRules,
) -> anyhow::Result<(Arc<dyn Store>, Accounts)> {
    let store = match osb_store::open_shared(location).await? {
        Some(store) => store,
        None => osb_store::open(location).await.context(
            "the store has another schema than this release; use the release of the running server",
        )?,
    };
    let accounts = Accounts::open_with(Arc::clone(&store), rules.has_tenants).await?;
    Ok((store, accounts))
}

/// What a command does, for the audit trail; `None` until it is about to change something.
type Deed = Option<AuditEntry>;

/// An act at the command line, before it is done, with what is known of it.
fn deed(action: Action, facts: Map<String, Value>) -> AuditEntry {
    let uid = rustix::process::getuid().as_raw().to_string();
    let mut user = ["SUDO_USER", "USER", "LOGNAME"].into_iter();
    let user = user.find_map(|name| std::env::var(name).ok());
    let actor = AuditActor {
        kind: AuditActorKind::CommandLine,
        name: audit::bounded(user.as_deref().unwrap_or(&uid)),
        id: uid,
        role: None,
        tenant: None,
    };
    let mut deed = audit::entry(action, actor, AuditOutcome::Failed);
    deed.changes = facts;
    deed
}

/// Notes the object of an act, whose it is, and what else is known of it.
fn note(deed: &mut AuditEntry, id: &str, tenant: Option<&str>, facts: Map<String, Value>) {
    id.clone_into(&mut deed.object.id);
    deed.tenant = tenant.map(audit::bounded);
    deed.changes.extend(facts);
}

/// Writes what a command did into the audit trail. It is done by then, so a failure is reported only.
async fn record(store: &dyn Store, deed: Deed, done: &anyhow::Result<()>) {
    let Some(mut deed) = deed else {
        return;
    };
    match done {
        Ok(()) => deed.outcome = AuditOutcome::Succeeded,
        Err(error) => {
            let error = error.downcast_ref::<AccountError>();
            deed.code = error.map(|error| error.code().to_owned());
        }
    }
    if let Err(error) = store.append_audit(&[deed]).await {
        eprintln!(
            "the audit trail has no entry of this: {}",
            ErrorChain(&error)
        );
    }
}

async fn change_users(
    accounts: &Accounts,
    command: UserCommand,
    password: fn() -> anyhow::Result<SecretString>,
    done: &mut Deed,
) -> anyhow::Result<()> {
    let find = |name: &str| {
        let id = accounts.user_id(name);
        id.with_context(|| format!("there is no user named {name}"))
    };
    match command {
        UserCommand::Add { name, role, tenant } => {
            let password = password()?.expose_secret().to_owned();
            let new = NewUser {
                name,
                password,
                role,
                tenant,
            };
            let facts = facts::of_account(&new.name, new.role);
            let doing = done.insert(deed(Action::UserCreate, facts));
            let user = accounts.add_user(new).await?;
            note(doing, &user.id, user.tenant.as_deref(), Map::new());
            println!("added {} ({})", user.name, user.role);
        }
        UserCommand::Reset { name } => {
            let id = find(&name)?;
            let edit = UserEdit {
                password: Some(password()?),
                disabled: Some(false),
                ..UserEdit::default()
            };
            let doing = done.insert(deed(Action::UserUpdate, facts::of_name(&name)));
            doing.object.id.clone_from(&id);
            let ChangedUser { before, after } = accounts.change_user(&id, edit).await?;
            let facts = facts::of_user_change(&before, &after, true);
            note(doing, &id, after.tenant.as_deref(), facts);
            println!("{} has a new password", after.name);
        }
        UserCommand::Remove { name } => {
            let id = find(&name)?;
            let doing = done.insert(deed(Action::UserDelete, facts::of_name(&name)));
            doing.object.id.clone_from(&id);
            let user = accounts.delete_user(&id).await?;
            let facts = facts::of_account(&user.name, user.role);
            note(doing, &id, user.tenant.as_deref(), facts);
            println!("removed {name}");
        }
        UserCommand::List { json } => {
            let users = accounts.users();
            if json {
                println!("{}", serde_json::to_string_pretty(&users)?);
            } else {
                print!("{}", table(&USER_COLUMNS, users.iter().map(user_row)));
            }
        }
    }
    Ok(())
}

async fn change_keys(
    accounts: &Accounts,
    command: KeyCommand,
    done: &mut Deed,
) -> anyhow::Result<()> {
    match command {
        KeyCommand::Add {
            name,
            role,
            tenant,
            days,
        } => {
            let expires_at = days.and_then(|days| in_seconds(i64::from(days) * DAY));
            let new = NewApiKey {
                name,
                role,
                tenant,
                expires_at,
            };
            let facts = facts::of_account(&new.name, new.role);
            let doing = done.insert(deed(Action::KeyCreate, facts));
            let issued = accounts.add_key(new).await?;
            let key = &issued.key;
            note(doing, &key.id, key.tenant.as_deref(), facts::of_key(key));
            eprintln!(
                "key {} ({}); its secret is not shown again:",
                issued.key.id, issued.key.role
            );
            println!("{}", issued.secret);
        }
        KeyCommand::List { json } => {
            let keys = accounts.keys();
            if json {
                println!("{}", serde_json::to_string_pretty(&keys)?);
            } else {
                print!("{}", table(&KEY_COLUMNS, keys.iter().map(key_row)));
            }
        }
        KeyCommand::Revoke { key } => {
            let known = accounts.keys().into_iter();
            let named: Vec<_> = known
                .filter(|it| it.id == key || it.prefix == key)
                .collect();
            let [found] = &named[..] else {
                bail!("{} keys are named {key}; use the id", named.len());
            };
            let doing = done.insert(deed(Action::KeyRevoke, Map::new()));
            note(
                doing,
                &found.id,
                found.tenant.as_deref(),
                facts::of_key(found),
            );
            accounts.revoke_key(&found.id).await?;
            println!("revoked {} ({})", found.name, found.id);
        }
    }
    Ok(())
}

const USER_COLUMNS: [&str; 5] = ["NAME", "ROLE", "TENANT", "STATE", "ID"];

fn user_row(user: &User) -> [String; 5] {
    let state = if user.disabled { "disabled" } else { "active" };
    [
        user.name.clone(),
        user.role.to_string(),
        user.tenant.clone().unwrap_or_else(|| "-".to_owned()),
        state.to_owned(),
        user.id.clone(),
    ]
}

const KEY_COLUMNS: [&str; 8] = [
    "PREFIX",
    "NAME",
    "ROLE",
    "TENANT",
    "EXPIRES",
    "LAST USED",
    "STATE",
    "ID",
];

fn key_row(key: &ApiKey) -> [String; 8] {
    let time = |time: Option<WireTime>| time.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let has_expired = key
        .expires_at
        .zip(in_seconds(0))
        .is_some_and(|(at, now)| at <= now);
    let state = match (key.revoked_at, has_expired) {
        (Some(_), _) => "revoked",
        (None, true) => "expired",
        (None, false) => "active",
    };
    [
        key.prefix.clone(),
        key.name.clone(),
        key.role.to_string(),
        key.tenant.clone().unwrap_or_else(|| "-".to_owned()),
        time(key.expires_at),
        time(key.last_used_at),
        state.to_owned(),
        key.id.clone(),
    ]
}

/// Rows under their headings, each column as wide as its widest cell.
fn table<const N: usize>(headings: &[&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut lines = vec![headings.map(str::to_owned)];
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..N)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Asks for a password twice on a terminal; otherwise reads the first line of standard input.
fn read_password() -> anyhow::Result<SecretString> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return read_line(&mut stdin.lock());
    }
    let ask = |prompt: &str| -> anyhow::Result<SecretString> {
        eprint!("{prompt}");
        io::stderr().flush()?;
        let _hidden = Hidden::start().context("cannot hide what is typed")?;
        let line = read_line(&mut io::stdin().lock());
        eprintln!();
        line
    };
    let password = ask("New password: ")?;
    if ask("Once more: ")?.expose_secret() != password.expose_secret() {
        bail!("the passwords differ");
    }
    Ok(password)
}

fn read_line(input: &mut impl BufRead) -> anyhow::Result<SecretString> {
    let mut line = String::new();
    if input
        .read_line(&mut line)
        .context("cannot read the password")?
        == 0
    {
        bail!("no password was given on standard input");
    }
    let length = line.trim_end_matches(['\r', '\n']).len();
    line.truncate(length);
    Ok(line.into())
}

/// Keeps a terminal from showing what is typed, until it is dropped.
struct Hidden(Termios);

impl Hidden {
    fn start() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::identity::Role;
    use osb_store::AuditQuery;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_line_is_the_password() {
        let read = |text: &str| read_line(&mut text.as_bytes());
        let line = |text| read(text).unwrap().expose_secret().to_owned();
        assert_eq!(line("a b \r\nmore\n"), "a b ");
        assert_eq!(line("last"), "last");
        assert!(read("").is_err());
    }

    #[test]
    fn columns_line_up() {
        let rows = [
            ["äö".to_owned(), "x".to_owned()],
            ["a".to_owned(), String::new()],
        ];
        assert_eq!(table(&["A", "B"], rows.into_iter()), "A   B\näö  x\na\n");
    }

    #[tokio::test]
    async fn commands_for_users_note_what_the_api_notes() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("s.db"));
        let rules = AccountRules {
            recorded: true,
            has_tenants: false,
        };
        let (store, accounts) = open(&location, rules).await.unwrap();
        let run = async |command| {
            let mut deed = None;
            let password = || Ok("a long password".into());
            let done = change_users(&accounts, command, password, &mut deed).await;
            record(&*store, deed, &done).await;
            let newest = store.audit(&AuditQuery::default(), 1).await.unwrap();
            newest.into_iter().next().unwrap().1
        };
        let add = || UserCommand::Add {
            name: "zoe".into(),
            role: Role::Operator,
            tenant: Some("a".into()),
        };
        let added = run(add()).await;
        let id = accounts.user_id("zoe").unwrap();
        let object = |entry: &AuditEntry| (entry.object.id.clone(), entry.tenant.clone());
        let expected = (id.clone(), Some("a".to_owned()));
        assert_eq!(object(&added), expected);
        let account = json!({"name": "zoe", "role": "operator"});
        assert_eq!(Value::from(added.changes), account);
        let again = run(add()).await;
        let seen = (again.outcome, again.code.as_deref());
        assert_eq!(seen, (AuditOutcome::Failed, Some("GENERAL::CONFLICT")));
        let disable = UserEdit {
            disabled: Some(true),
            ..UserEdit::default()
        };
        accounts.change_user(&id, disable).await.unwrap();
        let reset = run(UserCommand::Reset { name: "zoe".into() }).await;
        assert_eq!(object(&reset), expected);
        let changes = json!({
            "name": "zoe",
            "disabled": {"before": true, "after": false},
            "passwordChanged": true,
        });
        assert_eq!(Value::from(reset.changes), changes);
        let removed = run(UserCommand::Remove { name: "zoe".into() }).await;
        assert_eq!(object(&removed), expected);
        assert_eq!(Value::from(removed.changes), account);
        store.close().await;
    }

    #[tokio::test]
    async fn keys_are_managed_on_a_store_that_no_server_has_made() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Sqlite(folder.path().join("new/s.db"));
        let add = |name: &str| KeyCommand::Add {
            name: name.into(),
            role: Role::ServiceAdmin,
            tenant: None,
            days: Some(30),
        };
        let rules = |has_tenants| AccountRules {
            recorded: true,
            has_tenants,
        };
        let for_all = KeyCommand::Add {
            name: "all".into(),
            role: Role::Operator,
            tenant: None,
            days: None,
        };
        let unrecorded = AccountRules {
            recorded: false,
            ..rules(true)
        };
        let refused = keys(&location, unrecorded, for_all).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("tenant: must be set"), "{refused}");
        let keys = async |command| keys(&location, rules(false), command).await;
        keys(add("first")).await.unwrap();
        keys(add("second")).await.unwrap();
        let (store, accounts) = open(&location, rules(false)).await.unwrap();
        let listed = accounts.keys();
        store.close().await;
        drop((store, accounts));
        assert_eq!(listed.len(), 2);
        assert!(listed.iter().all(|key| key.expires_at.is_some()));
        let revoke = |key: &str| KeyCommand::Revoke { key: key.into() };
        keys(revoke(&listed[0].prefix)).await.unwrap();
        let refused = keys(revoke("osb_none")).await.unwrap_err();
        assert!(refused.to_string().contains("0 keys"), "{refused}");
        let (store, accounts) = open(&location, rules(false)).await.unwrap();
        assert!(accounts.keys()[0].revoked_at.is_some());
        assert!(accounts.keys()[1].revoked_at.is_none());
        let trail = store.audit(&AuditQuery::default(), 10).await.unwrap();
        let trail: Vec<_> = trail.into_iter().map(|(_, entry)| entry).collect();
        let seen = trail
            .iter()
            .rev()
            .map(|it| (it.action.as_str(), it.object.id.as_str()));
        let [newest, oldest] = [&listed[0].id, &listed[1].id];
        let expected = [
            ("key.create", oldest.as_str()),
            ("key.create", newest.as_str()),
            ("key.revoke", newest.as_str()),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), expected);
        for it in &trail {
            let mut facts: Vec<_> = it.changes.keys().map(String::as_str).collect();
            facts.sort_unstable();
            assert_eq!(facts, ["expiresAt", "name", "prefix", "role"], "{it:?}");
        }
        let actor = &trail[0].actor;
        let uid = rustix::process::getuid().as_raw().to_string();
        assert_eq!((actor.kind, &actor.id), (AuditActorKind::CommandLine, &uid));
        assert!(trail.iter().all(|it| it.outcome == AuditOutcome::Succeeded));
        store.close().await;
    }
}
