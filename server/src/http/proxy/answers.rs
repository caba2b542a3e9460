//! What a sandbox sends, which is hostile: headers that would act in this server's name.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONTENT_SECURITY_POLICY, PUBLIC_KEY_PINS, PUBLIC_KEY_PINS_REPORT_ONLY, REFRESH, SERVER,
        SET_COOKIE, STRICT_TRANSPORT_SECURITY, WWW_AUTHENTICATE,
    },
};

/// The console's cookies begin like this; see `console::session`.
const CONSOLE_COOKIES: [&[u8]; 3] = [b"osb_", b"__host-", b"__secure-"];

const SANDBOXED: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals",
);
/// Response headers that stay here.
pub(super) static DROPPED: [HeaderName; 19] = [
    // The backend's name.
    SERVER,
    // Asks the browser for a password in this server's name. The `Authorization` that would follow
    // stays here too, so no program can use it.
    WWW_AUTHENTICATE,
    // Leads the page to an address that, unlike `Location`, has no proxy path put in front.
    REFRESH,
    // What browsers keep for the whole origin, the console included: where else it is served,
    HeaderName::from_static("alt-svc"),
    // that it needs HTTPS, with which certificates,
    STRICT_TRANSPORT_SECURITY,
    PUBLIC_KEY_PINS,
    PUBLIC_KEY_PINS_REPORT_ONLY,
    HeaderName::from_static("expect-ct"),
    // what to forget of it,
    HeaderName::from_static("clear-site-data"),
    // where to report what users do on it,
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    // what to tell it with each request,
    HeaderName::from_static("accept-ch"),
    HeaderName::from_static("critical-ch"),
    HeaderName::from_static("use-as-dictionary"),
    // who is signed in,
    HeaderName::from_static("set-login"),
    HeaderName::from_static("sec-session-registration"),
    HeaderName::from_static("sec-session-challenge"),
    // and which of its paths a service worker may serve.
    HeaderName::from_static("service-worker-allowed"),
];

/// Keeps what a sandbox sends from acting in this server's name.
pub(super) fn guard(headers: &mut HeaderMap) {
    headers.append(CONTENT_SECURITY_POLICY, SANDBOXED);
    let harmful = |cookie: &HeaderValue| is_console_cookie(cookie) || has_domain(cookie);
    if headers.get_all(SET_COOKIE).iter().any(harmful) {
        let kept: Vec<HeaderValue> = headers
            .get_all(SET_COOKIE)
            .iter()
            .filter(|cookie| !harmful(cookie))
            .cloned()
            .collect();
        headers.remove(SET_COOKIE);
        for cookie in kept {
            headers.append(SET_COOKIE, cookie);
        }
    }
}

/// Whether a cookie has a name of the console's.
fn is_console_cookie(cookie: &HeaderValue) -> bool {
    let cookie = cookie.as_bytes();
    // Browsers send a cookie without a name, `=osb_console=x`, as its value alone.
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'=';
    let start = cookie.iter().position(|byte| !blank(byte));
    let name = cookie[start.unwrap_or(0)..].to_ascii_lowercase();
    CONSOLE_COOKIES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether a cookie would be sent to other hosts than this one.
fn has_domain(cookie: &HeaderValue) -> bool {
    let mut attributes = cookie.as_bytes().split(|byte| *byte == b';').skip(1);
    attributes.any(|attribute| {
        let name = attribute.split(|byte| *byte == b'=').next();
        name.is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"domain"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_answers_are_guarded() {
        let mut headers = HeaderMap::new();
        for cookie in [
            "a=1",
            " OSB_console=x; Path=/console",
            "__Host-osb=1",
            "=osb_console=x; Path=/console",
            " = \t__Secure-osb_console=x",
            "osb_console",
            "wide=1; Path=/; domain=example.org",
            "wide=1;Domain = .example.org ;Secure",
            "b=domain; Path=/domain",
        ] {
            headers.append(SET_COOKIE, cookie.parse().unwrap());
        }
        headers.insert(CONTENT_SECURITY_POLICY, "default-src *".parse().unwrap());
        guard(&mut headers);
        let cookies: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1", "b=domain; Path=/domain"]);
        let policies: Vec<_> = headers.get_all(CONTENT_SECURITY_POLICY).iter().collect();
        assert_eq!(policies.len(), 2);
        assert!(!policies[1].to_str().unwrap().contains("allow-same-origin"));
    }
}
