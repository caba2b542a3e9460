//! The secret of a new key, which is shown once.

use leptos::prelude::*;
use osb_protocol::identity::IssuedApiKey;

use crate::ui::{CodeBlock, Icon};

/// Id of what shows the secret.
pub(super) const ISSUED: &str = "issued-key";

/// The key that the form without script has just made, as context of the answer.
#[derive(Clone)]
pub struct Issued(pub IssuedApiKey);

/// The secret, with the way to use it.
#[component]
pub(super) fn IssuedKey(issued: IssuedApiKey) -> impl IntoView {
    let secret = issued.secret.clone();
    let header = format!("OPEN-SANDBOX-API-KEY: {}", issued.secret);
    view! {
        <section id=ISSUED class="card issued" tabindex="-1" aria-labelledby="issued-title">
            <h3 id="issued-title">
                <Icon name="key-round" />
                {format!("The API key {} is made", issued.key.name)}
            </h3>
            <p>
                <strong>"Copy the secret now: it is not shown again."</strong>
                " The server keeps only its digest. If you lose it, revoke the key and make another one."
            </p>
            <CodeBlock code=secret what="secret" />
            <p class="help">"Requests send it in this header:"</p>
            <CodeBlock code=header what="header" />
        </section>
    }
    .into_any()
}
