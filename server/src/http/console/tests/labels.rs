//! Labels of a sandbox, changed on its page.

use std::collections::BTreeMap;

use osb_protocol::{SandboxId, audit::AuditOutcome};

use super::Console;

impl Console {
    fn labels(&self, id: &SandboxId) -> BTreeMap<String, String> {
        let record = self.service.find(id).unwrap();
        record.sandbox.metadata.clone()
    }
}

fn map(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    let all = all.iter();
    all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_form_sets_and_deletes_what_was_changed_in_it() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let form = format!("/console/sandboxes/{id}/labels");
    let page = console.get(&format!("/console/sandboxes/{id}")).await.body;
    let rows = page.split_once(&format!("action=\"{form}\"")).unwrap().1;
    let title = rows.find("value=\"name\"").unwrap();
    assert!(
        title < rows.find("value=\"team\"").unwrap(),
        "the name is first"
    );
    // Another client adds one meanwhile.
    let patch = [("by-api".to_owned(), Some("1".to_owned()))].into();
    console.service.patch_metadata(&id, patch).await.unwrap();
    let rows =
        "was=&old=&label=name&value=web&was=team&old=a&label=&value=a&was=&old=&label=x%2Fy&value=";
    let answer = console.post(&form, rows).await;
    assert_eq!(answer.location(), format!("/console/sandboxes/{id}"));
    let wanted = map(&[("by-api", "1"), ("name", "web"), ("x/y", "")]);
    assert_eq!(console.labels(&id), wanted);
    let page = console.get(answer.location()).await.body;
    assert!(page.contains("web has new labels"), "{page}");
}

#[tokio::test]
async fn rows_that_break_the_rules_change_nothing_and_say_why() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let form = format!("/console/sandboxes/{id}/labels");
    let rows =
        "was=&old=&label=good&value=1&was=&old=&label=-&value=1&was=&old=&label=good&value=2";
    let left = console.left_by(console.post(&form, rows)).await;
    assert_eq!(left[0].outcome, AuditOutcome::Failed, "{left:?}");
    assert_eq!(console.labels(&id), map(&[("team", "a")]));
    let page = console.get(&format!("/console/sandboxes/{id}")).await.body;
    for part in ["A name has 1 to 63", "There is another label good."] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[tokio::test]
async fn a_script_sets_and_deletes_labels_and_learns_what_is_wrong() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let call = "/console/fn/sandboxes/labels";
    let body =
        format!("id={id}&set[0][0]=x%2Fy&set[0][1]=&set[1][0]=name&set[1][1]=web&deleted[0]=team");
    let answer = console.post(call, &body).await;
    assert!(answer.body.contains("done"), "{}", answer.body);
    assert_eq!(console.labels(&id), map(&[("name", "web"), ("x/y", "")]));
    let body = format!("id={id}&set[0][0]=opensandbox.io%2Fx&set[0][1]=1");
    let answer = console.post(call, &body).await;
    assert!(answer.body.contains("reserved"), "{}", answer.body);
    assert_eq!(console.labels(&id), map(&[("name", "web"), ("x/y", "")]));
}
