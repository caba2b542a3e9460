//! Domains below which names of different owners may be: a wildcard there would allow strangers.
//!
//! No complete list is possible, so this is cautious: in doubt, a domain counts as shared.

/// Labels below which registries of countries register names.
const REGISTRIES: [&str; 12] = [
    "asso", "conf", "firm", "gouv", "govt", "idv", "info", "mobi", "name", "press", "priv",
    "school",
];

/// Countries whose registries also register names below regions or cities, or below labels of any
/// length.
const DEEP_COUNTRIES: [&str; 26] = [
    "ar", "bd", "br", "ca", "ck", "er", "fk", "hu", "it", "jm", "jp", "kh", "kr", "mm", "no", "np",
    "pg", "pl", "ru", "th", "tr", "ua", "us", "vn", "za", "zw",
];

/// Domains of services that give each customer a name of their own.
const SERVICES: [&str; 78] = [
    "akamai.net",
    "akamaihd.net",
    "akamaized.net",
    "aliyuncs.com",
    "amazonaws.com",
    "amazonaws.com.cn",
    "appspot.com",
    "awsapprunner.com",
    "azure-api.net",
    "azurecontainer.io",
    "azureedge.net",
    "azurefd.net",
    "azurewebsites.net",
    "b-cdn.net",
    "backblazeb2.com",
    "bitbucket.io",
    "blogspot.com",
    "cloudapp.azure.com",
    "cloudapp.net",
    "cloudflarestorage.com",
    "cloudfront.net",
    "cloudfunctions.net",
    "deno.dev",
    "digitaloceanspaces.com",
    "duckdns.org",
    "dyndns.org",
    "edgekey.net",
    "edgesuite.net",
    "elasticbeanstalk.com",
    "fastly.net",
    "fastlylb.net",
    "firebaseapp.com",
    "firebaseio.com",
    "fly.dev",
    "github.io",
    "githubpreview.dev",
    "githubusercontent.com",
    "gitlab.io",
    "glitch.me",
    "googleapis.com",
    "googleusercontent.com",
    "herokuapp.com",
    "herokudns.com",
    "hf.space",
    "linodeobjects.com",
    "myqcloud.com",
    "myshopify.com",
    "netlify.app",
    "ngrok-free.app",
    "ngrok.app",
    "ngrok.dev",
    "ngrok.io",
    "nip.io",
    "no-ip.org",
    "now.sh",
    "on.aws",
    "ondigitalocean.app",
    "onrender.com",
    "oraclecloud.com",
    "pages.dev",
    "r2.dev",
    "railway.app",
    "readthedocs.io",
    "repl.co",
    "replit.app",
    "replit.dev",
    "run.app",
    "scw.cloud",
    "sslip.io",
    "streamlit.app",
    "supabase.co",
    "surge.sh",
    "trafficmanager.net",
    "trycloudflare.com",
    "vercel.app",
    "wasabisys.com",
    "windows.net",
    "workers.dev",
];

/// Whether names below a domain may belong to different owners, as below `com`, `co.uk` and
/// `github.io`. The domain is in lower case, without a final dot.
pub(super) fn may_be_shared(domain: &str) -> bool {
    let labels: Vec<&str> = domain.split('.').collect();
    let [.., second, top] = labels.as_slice() else {
        return true;
    };
    if SERVICES.iter().any(|service| is_within(domain, service)) || *top == "arpa" {
        return true;
    }
    // `co.uk`, `uk.com`; a few companies have such a short name.
    let is_registry = second.len() <= 3 || REGISTRIES.contains(second);
    match labels.len() {
        2 => is_registry || DEEP_COUNTRIES.contains(top),
        3 => DEEP_COUNTRIES.contains(top) && !is_registry,
        _ => false,
    }
}

/// Whether a name is a domain or below it.
pub(super) fn is_within(name: &str, domain: &str) -> bool {
    name == domain || is_below(name, domain)
}

/// Whether a name is below a domain.
pub(super) fn is_below(name: &str, domain: &str) -> bool {
    let rest = name.strip_suffix(domain);
    rest.is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_of_many_owners_is_shared() {
        for shared in [
            "com",
            "uk",
            "co.uk",
            "com.au",
            "gov.br",
            "uk.com",
            "asso.fr",
            "tokyo.jp",
            "chiyoda.tokyo.jp",
            "in-addr.arpa",
            "113.0.203.in-addr.arpa",
            "github.io",
            "someone.github.io",
            "s3.amazonaws.com",
            "blob.core.windows.net",
            "t.co",
        ] {
            assert!(may_be_shared(shared), "{shared}");
        }
        for owned in [
            "example.com",
            "example.org",
            "cdn.example.org",
            "example.co.uk",
            "example.com.br",
            "example.co.jp",
            "notgithub.io",
            "corp.internal",
        ] {
            assert!(!may_be_shared(owned), "{owned}");
        }
    }

    #[test]
    fn below_means_whole_labels() {
        assert!(is_below("a.example.org", "example.org"));
        assert!(is_below("a.b.example.org", "example.org"));
        assert!(!is_below("example.org", "example.org"));
        assert!(!is_below("badexample.org", "example.org"));
        assert!(is_within("example.org", "example.org"));
    }
}
