//! Intended differences between the served document and the contract.

/// Differences with their reasons. `-` is missing here, `+` is missing in the contract, `~` differs;
/// `*` stands for any text.
const INTENDED: &[(&str, &str)] = &[
    // On purpose.
    (
        "~ * /v1/templates* *image: string, required -> string",
        "with build, the request has none",
    ),
    (
        "~ * /v1/templates* *status.phase: string of *",
        "the console also shows those that are Deleting",
    ),
    (
        "- * header x-request-id*",
        "every route takes and returns it; the introduction says so once",
    ),
    (
        "- * /v1/sandboxes/{}/proxy/*",
        "any method and any body: no schema describes it",
    ),
    (
        "- GET /v1/sandboxes/{}/diagnostics/* 200.contentUrl: string",
        "every content is in the answer",
    ),
    (
        "- GET /v1/sandboxes/{}/diagnostics/* 200.expiresAt: string",
        "every content is in the answer",
    ),
    ("- *image.auth*", "no answer contains credentials"),
    (
        "- POST /v1/metrics/events header user-agent*",
        "every client sends it",
    ),
    (
        "~ POST /v1/sandboxes 202.entrypoint: array of string -> array of string, required",
        "it is always sent",
    ),
    (
        "+ GET /health 200.*",
        "the contract does not describe the answer",
    ),
    (
        "+ GET /version 200.*",
        "the contract does not describe the answer",
    ),
    (
        "+ * /v1/sandboxes/{}/networkpolicy 200.*",
        "the contract describes this answer as the sidecar's",
    ),
    (
        "~ * /v1/*snapshots* *status.state: string, required -> string of *",
        "the contract's text has these states",
    ),
    (
        "~ * /v1/sandboxes* *allocation.*: string -> string, required",
        "an allocation is shown with both",
    ),
    // Beyond the contract.
    (
        "+ PUT /v1/pools/{} body.template*",
        "another template replaces the sandboxes that wait",
    ),
    (
        "+ * /v1/*snapshots* *sizeBytes: integer",
        "disk that only this snapshot takes",
    ),
    (
        "+ * /v1/*snapshots* *sourceSnapshotId: string",
        "the snapshot that the source was made from",
    ),
    ("+ * /v1/templates* *build*", "an image that is built"),
    ("+ GET /v1/templates/{}/log*", "what a build wrote"),
    ("+ GET /ready*", "readiness with its reason"),
    ("+ * /v1/users*", "administration of users"),
    ("+ * /v1/api-keys*", "administration of API keys"),
    (
        "+ * /v1/sessions*",
        "administration of sessions of the console",
    ),
    ("+ * /v1/webhooks*", "administration of webhooks"),
    ("+ GET /v1/whoami*", "a client asks who it is"),
    ("+ GET /v1/audit*", "who did what"),
    ("+ GET /v1/quotas*", "quotas and what is used of them"),
    (
        "+ GET /v1/sandboxes/{}/metrics*",
        "recorded resource use, and its stream",
    ),
    (
        "+ GET /v1/sandboxes/{}/networkpolicy/*",
        "what the sidecar decided, and a policy for it",
    ),
    (
        "+ GET /v1/sandboxes/{}/commands*",
        "commands that the sandbox reports",
    ),
    (
        "+ * /v1/pools* query tenant*",
        "operators without a tenant reach the pools of one",
    ),
    (
        "+ POST /v1/sandboxes header idempotency-key*",
        "a create can be repeated safely",
    ),
];

/// Whether a text matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(left) = text.strip_prefix(start) else {
        return false;
    };
    let mut ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
    ends.any(|at| matches(rest, &left[at..]))
}

/// Fails with the differences that are not listed, and the entries that match none.
pub(crate) fn check(found: &[String]) {
    let is_unlisted = |line: &&String| !INTENDED.iter().any(|(pattern, _)| matches(pattern, line));
    let unlisted: Vec<_> = found.iter().filter(is_unlisted).collect();
    let unused: Vec<_> = INTENDED
        .iter()
        .filter(|(pattern, _)| !found.iter().any(|line| matches(pattern, line)))
        .collect();
    assert!(
        unlisted.is_empty() && unused.is_empty(),
        "not listed:\n{unlisted:#?}\nlisted, but not found:\n{unused:#?}"
    );
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, text, want) in [
        ("a*c", "abbc", true),
        ("a*c", "ac", true),
        ("a*c", "abcd", false),
        ("*b*", "abc", true),
        ("abc", "abc", true),
        ("abc", "abcd", false),
    ] {
        assert_eq!(matches(pattern, text), want, "{pattern} {text}");
    }
}
