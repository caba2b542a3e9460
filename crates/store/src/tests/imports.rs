//! Imports from files.

use std::collections::{BTreeMap, HashMap};

use osb_protocol::{SandboxId, WireTime};

use super::Stage;
use crate::{Changes, EndedSpec, ForeignImport, HistoryEntry, ImportedFiles, Outcome};

pub(super) async fn an_import_is_kept_with_its_files_until_the_sandbox_is_gone(stage: Stage) {
    let store = stage.open().await;
    let (id, at) = (SandboxId::from("a"), WireTime::from_unix_us(5).unwrap());
    let metadata = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let first = ForeignImport {
        expires_at: Some(at),
        metadata: Some(metadata.clone()),
        tenant: Some("team-a".into()),
        files: ImportedFiles {
            expiry: Some([1; 32]),
            metadata: Some([2; 32]),
        },
    };
    store.import(&id, &first).await.unwrap();
    // Nothing of it is news but the file.
    let second = ForeignImport {
        files: ImportedFiles {
            expiry: Some([3; 32]),
            ..first.files
        },
        ..ForeignImport::default()
    };
    store.import(&id, &second).await.unwrap();
    let changes = Changes {
        expires_at: Some(at),
        metadata: Some(metadata),
        tenant: Some("team-a".into()),
        ..Changes::default()
    };
    let stored = store.all_changes().await.unwrap();
    assert_eq!(stored, HashMap::from([(id.clone(), changes)]));
    let imported = store.imported_files().await.unwrap();
    assert_eq!(imported, HashMap::from([(id.clone(), second.files)]));
    let entry = HistoryEntry {
        id,
        image: String::new(),
        created_at: at,
        ended_at: at,
        outcome: Outcome::Deleted,
        reason: "DELETED".into(),
        message: String::new(),
        stages: Vec::new(),
        tenant: None,
        spec: EndedSpec::default(),
    };
    store.finish(&entry).await.unwrap();
    assert!(store.imported_files().await.unwrap().is_empty());
    assert!(store.all_changes().await.unwrap().is_empty());
}
