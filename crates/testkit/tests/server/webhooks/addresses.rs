//! Addresses that messages are not sent to.

use osb_testkit::WebhookReceiver;
use serde_json::json;

use super::support::{Stage, arrived};

#[tokio::test]
async fn private_addresses_are_refused_however_they_are_written() {
    let stage = Stage::with("").await;
    let receiver = WebhookReceiver::start().await.unwrap();
    let port = receiver.address.port();
    // The last one is a name that resolves to a private address.
    for host in [
        "127.0.0.1",
        "2130706433",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "localhost",
    ] {
        let url = format!("http://{host}:{port}/");
        let added = stage.add(json!({"name": host, "url": url})).await;
        stage.test(&added).await;
        let failed = stage.until(&added, "pending", 1).await;
        let error = failed["error"].as_str().unwrap();
        assert!(
            error.contains("not on the public Internet"),
            "{host}: {error}"
        );
    }
    assert_eq!(receiver.received().len(), 0);
    stage.server.stop().await;
}

#[tokio::test]
async fn a_network_that_the_operator_opens_is_reached() {
    let more = "[webhooks_delivery]\nallow_networks = ['127.0.0.0/8']\n";
    let stage = Stage::with(more).await;
    let receiver = WebhookReceiver::start().await.unwrap();
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/", receiver.address.port());
        let added = stage.add(json!({"name": host, "url": url})).await;
        stage.test(&added).await;
        stage.until(&added, "delivered", 1).await;
    }
    assert_eq!(arrived(&receiver, 2).await.len(), 2);
    stage.server.stop().await;
}
