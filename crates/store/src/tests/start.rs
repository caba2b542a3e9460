//! One server at a time.

use std::error::Error;

use super::Stage;

pub(super) async fn a_second_server_is_rejected_until_the_first_has_closed(stage: Stage) {
    let first = stage.open().await;
    first.check().await.unwrap();
    let error = stage.try_open().await.unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("another server"), "{error}: {cause}");
    first.check().await.unwrap();
    first.close().await;
    drop(first);
    let second = stage.open().await;
    second.check().await.unwrap();
    second.close().await;
}
