//! Receivers behind HTTPS.

use osb_testkit::WebhookReceiver;
use serde_json::json;

use super::support::{Added, OPEN, Stage, arrived, verify};

/// A receiver whose certificate is for these names, and the certificate.
pub(crate) async fn receiver(names: &[&str]) -> (WebhookReceiver, String) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let issued = rcgen::generate_simple_self_signed(names).unwrap();
    let (certificate, key) = (issued.cert.pem(), issued.signing_key.serialize_pem());
    let receiver = WebhookReceiver::start_tls(&certificate, &key).await;
    (receiver.unwrap(), certificate)
}

/// A server that trusts these certificates, too.
async fn stage(certificates: &[&str]) -> (Stage, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, certificates.concat()).unwrap();
    let stage = Stage::with(&format!("{OPEN}ca_file = '{}'\n", file.display())).await;
    (stage, folder)
}

async fn subscribed(stage: &Stage, host: &str, receiver: &WebhookReceiver) -> Added {
    let url = format!("https://{host}:{}/hook", receiver.address.port());
    stage.add(json!({"name": host, "url": url})).await
}

/// Why the test of a subscription fails.
async fn failure(stage: &Stage, added: &Added) -> String {
    stage.test(added).await;
    let failed = stage.until(added, "pending", 1).await;
    assert!(failed.get("responseStatus").is_none(), "{failed}");
    failed["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_with_a_reason() {
    let stage = Stage::new().await;
    let (receiver, _) = receiver(&["localhost"]).await;
    let added = subscribed(&stage, "localhost", &receiver).await;
    let error = failure(&stage, &added).await;
    assert!(error.contains("certificate"), "{error}");
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert_eq!(receiver.received().len(), 0);
    stage.server.stop().await;
}

#[tokio::test]
async fn a_certificate_of_a_configured_authority_is_accepted_for_its_name_only() {
    let (fitting, one) = receiver(&["localhost", "127.0.0.1"]).await;
    let (other, two) = receiver(&["hooks.example.org"]).await;
    let (stage, _folder) = stage(&[&one, &two]).await;
    for (index, host) in ["localhost", "127.0.0.1"].into_iter().enumerate() {
        let added = subscribed(&stage, host, &fitting).await;
        stage.test(&added).await;
        stage.until(&added, "delivered", 1).await;
        verify(&arrived(&fitting, index + 1).await[index], &added.secret);
    }
    let url = format!("https://localhost:{}/hook", other.address.port());
    let added = stage.add(json!({"name": "other", "url": url})).await;
    let error = failure(&stage, &added).await;
    assert!(error.contains("certificate"), "{error}");
    assert!(error.contains("hooks.example.org"), "{error}");
    assert_eq!(other.received().len(), 0);
    stage.server.stop().await;
}
