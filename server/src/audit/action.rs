//! What can be done, by its name in the trail.

/// Declares the actions, each with its name. The kind of object is given where the name does not begin
/// with it.
macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident $object:literal $name:literal,)*) => {
        /// Something that changes state, or opens a way into a sandbox.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action {
            $($(#[$doc])* $action,)*
        }

        impl Action {
            /// All actions.
            pub const ALL: &[Self] = &[$(Self::$action,)*];

            /// The name in the trail.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$action => $name,)*
                }
            }

            /// The kind of object that it is done to.
            #[must_use]
            pub const fn object(self) -> &'static str {
                match self {
                    $(Self::$action => $object,)*
                }
            }
        }
    };
}

actions! {
    /// A sandbox is created.
    SandboxCreate "sandbox" "sandbox.create",
    /// A sandbox is deleted.
    SandboxDelete "sandbox" "sandbox.delete",
    /// The expiry of a sandbox is moved.
    SandboxRenew "sandbox" "sandbox.renew",
    /// A sandbox is paused.
    SandboxPause "sandbox" "sandbox.pause",
    /// A paused sandbox is resumed.
    SandboxResume "sandbox" "sandbox.resume",
    /// A sandbox has reached its expiry and is removed by the server.
    SandboxExpire "sandbox" "sandbox.expire",
    /// A sandbox that no client knows is removed by the server.
    SandboxAbandon "sandbox" "sandbox.abandon",
    /// A client uses the execd of a sandbox through the proxy.
    SandboxEnter "sandbox" "sandbox.enter",
    /// Metadata of a sandbox are changed.
    MetadataPatch "sandbox" "metadata.patch",
    /// A terminal of the console is opened.
    TerminalOpen "sandbox" "terminal.open",
    /// A shell of the console is ended with all that runs in it.
    TerminalEnd "sandbox" "terminal.end",
    /// A command is run from the console.
    CommandRun "sandbox" "command.run",
    /// A command is interrupted from the console.
    CommandInterrupt "sandbox" "command.interrupt",
    /// A file or a folder of a sandbox is downloaded from the console.
    FileRead "sandbox" "file.read",
    /// A file of a sandbox is written from the console, or a folder made.
    FileWrite "sandbox" "file.write",
    /// A file or a folder of a sandbox is moved or renamed from the console.
    FileMove "sandbox" "file.move",
    /// A file or a folder of a sandbox is removed from the console.
    FileRemove "sandbox" "file.remove",
    /// The permission bits of a file of a sandbox are set from the console.
    FileMode "sandbox" "file.mode",
    /// A tunnel to a port of a sandbox is opened, such as a WebSocket through the proxy.
    TunnelOpen "sandbox" "tunnel.open",
    /// The network policy of a sandbox is replaced.
    NetworkPolicyReplace "sandbox" "network_policy.replace",
    /// The network policy of a sandbox is changed.
    NetworkPolicyPatch "sandbox" "network_policy.patch",
    /// The network policy of a sandbox is removed.
    NetworkPolicyDelete "sandbox" "network_policy.delete",
    /// A snapshot of a sandbox is taken.
    SnapshotCreate "sandbox" "snapshot.create",
    /// A snapshot is deleted.
    SnapshotDelete "snapshot" "snapshot.delete",
    /// A pool is added.
    PoolCreate "pool" "pool.create",
    /// A pool is changed.
    PoolUpdate "pool" "pool.update",
    /// A pool is removed.
    PoolDelete "pool" "pool.delete",
    /// A template is added.
    TemplateCreate "template" "template.create",
    /// A template is deleted.
    TemplateDelete "template" "template.delete",
    /// A user is added.
    UserCreate "user" "user.create",
    /// A user is changed.
    UserUpdate "user" "user.update",
    /// A user is removed.
    UserDelete "user" "user.delete",
    /// An API key is made.
    KeyCreate "key" "key.create",
    /// An API key is revoked.
    KeyRevoke "key" "key.revoke",
    /// A session of the console is opened.
    SessionSignIn "session" "session.sign_in",
    /// A key or password for the console is refused.
    SessionSignInFailed "session" "session.sign_in_failed",
    /// A session of the console is ended by its owner.
    SessionSignOut "session" "session.sign_out",
    /// A session of the console is ended from another one, or through the API.
    SessionRevoke "session" "session.revoke",
    /// A webhook is added.
    WebhookCreate "webhook" "webhook.create",
    /// A webhook is deleted.
    WebhookDelete "webhook" "webhook.delete",
    /// A webhook that its receiver disabled is enabled.
    WebhookEnable "webhook" "webhook.enable",
    /// A message that tests a webhook is sent.
    WebhookTest "webhook" "webhook.test",
    /// A message to a webhook is sent again.
    WebhookRedeliver "webhook" "webhook.redeliver",
    /// A request without a valid key, or one that only reads and whose role does not allow it.
    AccessDenied "server" "access.denied",
    /// Entries of the trail were lost.
    AuditLost "server" "audit.lost",
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Action;

    #[test]
    fn names_are_unique_and_plain() {
        let names: HashSet<_> = Action::ALL.iter().map(|action| action.name()).collect();
        assert_eq!(names.len(), Action::ALL.len());
        for name in names {
            let (object, verb) = name.split_once('.').unwrap();
            let plain = |word: &str| {
                word.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            };
            assert!(plain(object) && plain(verb), "{name}");
        }
    }
}
