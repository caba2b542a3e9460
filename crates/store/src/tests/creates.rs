//! Creates and their idempotency keys.

use std::sync::Arc;

use osb_protocol::WireTime;

use super::Stage;
use crate::{CreateKey, EndedSpec, HistoryEntry, Outcome, UnansweredCreate};

fn at(us: i64) -> WireTime {
    WireTime::from_unix_us(us).unwrap()
}

pub(super) async fn a_create_is_unanswered_until_it_is_answered_or_over(stage: Stage) {
    let store = stage.open().await;
    let create = |id: &str| UnansweredCreate {
        id: id.into(),
        image: "debian:12".into(),
        created_at: at(1),
        tenant: Some("team-a".to_owned()),
    };
    for id in ["answered", "over", "left"] {
        store.set_unanswered(&create(id)).await.unwrap();
    }
    store.set_answered(&"answered".into()).await.unwrap();
    let over = HistoryEntry {
        id: "over".into(),
        image: String::new(),
        created_at: at(1),
        ended_at: at(2),
        outcome: Outcome::Abandoned,
        reason: String::new(),
        message: String::new(),
        stages: Vec::new(),
        tenant: None,
        spec: EndedSpec::default(),
    };
    store.finish(&over).await.unwrap();
    let read = store.history(&over.id).await.unwrap().unwrap();
    assert_eq!(read.outcome, Outcome::Abandoned);
    assert_eq!(store.all_unanswered().await.unwrap(), [create("left")]);
    store.set_unanswered(&create("new")).await.unwrap();
    store.set_all_answered(&["left".into()]).await.unwrap();
    assert_eq!(store.all_unanswered().await.unwrap(), [create("left")]);
    store.set_all_answered(&[]).await.unwrap();
    assert_eq!(store.all_unanswered().await.unwrap(), []);
}

pub(super) async fn a_key_is_claimed_once_until_it_is_freed_or_expires(stage: Stage) {
    let store = stage.open().await;
    let claim = |id: &str, us| CreateKey {
        key: [1; 32],
        body: [2; 32],
        sandbox_id: id.into(),
        used_at: at(us),
    };
    assert_eq!(store.claim_key(&claim("a", 10), at(0)).await.unwrap(), None);
    let first = store.claim_key(&claim("b", 20), at(10)).await.unwrap();
    assert_eq!(first, Some(claim("a", 10)));
    let known = store.create_key(&[1; 32], at(10)).await.unwrap();
    assert_eq!(known, Some(claim("a", 10)));
    assert_eq!(store.create_key(&[1; 32], at(11)).await.unwrap(), None);
    assert_eq!(store.create_key(&[3; 32], at(0)).await.unwrap(), None);
    store.free_key(&[1; 32], &"b".into()).await.unwrap();
    let first = store.claim_key(&claim("b", 20), at(10)).await.unwrap();
    assert_eq!(first, Some(claim("a", 10)), "only its own sandbox frees it");
    store.free_key(&[1; 32], &"a".into()).await.unwrap();
    assert_eq!(store.claim_key(&claim("b", 20), at(0)).await.unwrap(), None);
    let expired = store.claim_key(&claim("c", 40), at(21)).await.unwrap();
    assert_eq!(expired, None);
    assert_eq!(store.prune_keys(at(40)).await.unwrap(), 0);
    assert_eq!(store.prune_keys(at(41)).await.unwrap(), 1);
}

pub(super) async fn concurrent_claims_of_a_key_have_one_winner(stage: Stage) {
    let store = stage.open().await;
    let mut claims = tokio::task::JoinSet::new();
    for n in 0..16 {
        let store = Arc::clone(&store);
        claims.spawn(async move {
            let claim = CreateKey {
                key: [1; 32],
                body: [2; 32],
                sandbox_id: n.to_string().as_str().into(),
                used_at: at(10),
            };
            let first = store.claim_key(&claim, at(0)).await.unwrap();
            (
                claim.sandbox_id.clone(),
                first.map(|first| first.sandbox_id),
            )
        });
    }
    let claims = claims.join_all().await;
    let won: Vec<_> = claims
        .iter()
        .filter(|(_, first)| first.is_none())
        .map(|(id, _)| id)
        .collect();
    let [winner] = won[..] else {
        panic!("{claims:?}");
    };
    for (_, first) in &claims {
        assert!(
            first.as_ref().is_none_or(|first| first == winner),
            "{claims:?}"
        );
    }
}
