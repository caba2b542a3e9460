//! What the form makes of what is typed.

use super::*;

#[test]
fn rules_of_the_wire_types_are_checked_without_the_server() {
    let form = CreateForm {
        image: "A B".to_owned(),
        cpu: "fast".to_owned(),
        memory: "lots".to_owned(),
        metadata: "!=1".to_owned(),
        env: "A".to_owned(),
        ..CreateForm::default()
    };
    let fields: Vec<_> = form.local_problems().iter().map(Field::of).collect();
    let wrong = [
        Field::Image,
        Field::Cpu,
        Field::Memory,
        Field::Env,
        Field::Metadata,
    ];
    assert_eq!(fields, wrong);
    let good = CreateForm {
        image: "debian:12".to_owned(),
        ..CreateForm::default()
    };
    assert_eq!(good.local_problems(), []);
}

#[test]
fn the_request_says_what_was_typed() {
    let form = CreateForm {
        image: " debian:12 ".to_owned(),
        entrypoint: "sh -c 'sleep 1'".to_owned(),
        env: "A=1\nEMPTY=".to_owned(),
        ttl: "2h".to_owned(),
        metadata: "team=a".to_owned(),
        name: " web ".to_owned(),
        ..CreateForm::default()
    };
    let request = form.request();
    assert_eq!(request.problems, []);
    assert_eq!(
        request.body,
        json!({
            "image": { "uri": "debian:12" },
            "entrypoint": ["sh", "-c", "sleep 1"],
            "env": { "A": "1", "EMPTY": "" },
            "resourceLimits": { "cpu": "1", "memory": "512Mi" },
            "timeout": 7200,
            "metadata": { "name": "web", "team": "a" },
        })
    );
}

#[test]
fn manual_cleanup_sends_no_timeout() {
    let form = CreateForm {
        lifetime: "manual".to_owned(),
        ..CreateForm::default()
    };
    assert_eq!(form.request().problems, []);
    assert_eq!(form.request().body.get("timeout"), None);
}

#[test]
fn a_name_that_is_given_twice_is_reported() {
    let form = CreateForm {
        name: "web".to_owned(),
        metadata: "name=api".to_owned(),
        ..CreateForm::default()
    };
    let fields: Vec<_> = form.request().problems.iter().map(Field::of).collect();
    assert_eq!(fields, [Field::Metadata]);
}

#[test]
fn unreadable_input_is_reported_at_its_field() {
    let form = CreateForm {
        entrypoint: "'".to_owned(),
        env: "novalue".to_owned(),
        metadata: "k=v\n=x".to_owned(),
        ttl: "soon".to_owned(),
        ..CreateForm::default()
    };
    let fields: Vec<_> = form.request().problems.iter().map(Field::of).collect();
    assert_eq!(
        fields,
        [Field::Entrypoint, Field::Env, Field::Metadata, Field::Ttl]
    );
}

#[test]
fn an_empty_image_field_has_a_message_of_the_form() {
    let rule = |field: &'static str| {
        FieldError::body(
            "missing",
            [Loc::from(field)],
            "one of image.uri and snapshotId is required",
        )
    };
    let problems = |image: &str| {
        let form = CreateForm {
            image: image.to_owned(),
            ..CreateForm::default()
        };
        form.problems(Vec::new(), vec![rule("image"), rule("volumes")])
    };
    let empty = problems(" ");
    assert_eq!(empty[0].msg, "Name an image, such as debian:bookworm-slim.");
    assert_eq!(Field::of(&empty[0]), Field::Image);
    assert_eq!(
        Field::of(&empty[1]),
        Field::More,
        "a member without a field"
    );
    assert!(empty[1].msg.starts_with("volumes: "), "{empty:?}");
    assert_eq!(problems("x")[0], rule("image"), "an image that was named");
}

#[test]
fn what_cannot_be_read_is_not_called_missing() {
    let form = CreateForm {
        image: "debian:12".to_owned(),
        entrypoint: "sh -c 'x".to_owned(),
        ..CreateForm::default()
    };
    let request = form.request();
    let missing = FieldError::body("missing", ["entrypoint"], "is required with image");
    let problems = form.problems(request.problems, vec![missing]);
    let texts: Vec<_> = problems.iter().map(|problem| &*problem.msg).collect();
    assert_eq!(texts, ["The command has a quote that is not closed."]);
}

#[test]
fn an_empty_form_misses_image_and_command_at_once() {
    let form = CreateForm {
        entrypoint: " ".to_owned(),
        ..CreateForm::default()
    };
    let no_image = FieldError::body("missing", ["image"], "is required");
    let problems = form.problems(form.request().problems, vec![no_image]);
    let fields: Vec<_> = problems.iter().map(Field::of).collect();
    assert_eq!(fields, [Field::Image, Field::Entrypoint]);
    let rule = FieldError::body("missing", ["entrypoint"], "is required with image");
    let problems = form.problems(Vec::new(), vec![rule]);
    assert_eq!(problems.len(), 1, "once: {problems:?}");
    assert_eq!(problems[0].msg, NO_COMMAND);
}

#[test]
fn problems_are_in_the_order_of_the_page_and_name_variables() {
    let form = CreateForm {
        ttl: "soon".to_owned(),
        ..CreateForm::default()
    };
    let rules = vec![
        FieldError::body(
            "value_error",
            ["env", "A"],
            "must not contain NUL characters",
        ),
        FieldError::body("value_error", ["resourceLimits", "cpu"], "expected cores"),
    ];
    let problems = form.problems(form.request().problems, rules);
    let texts: Vec<_> = problems.iter().map(|problem| &*problem.msg).collect();
    assert_eq!(
        texts,
        [
            "Write a duration such as 90s, 30m, 2h or 1d.",
            "expected cores",
            "A must not contain NUL characters",
        ]
    );
    assert!(Field::ALL.is_sorted());
}

#[test]
fn a_short_time_has_a_message_of_the_form() {
    let message = |kind: &str, msg: &str| {
        let rule = FieldError::body(kind, ["timeout"], msg);
        CreateForm::default()
            .problems(Vec::new(), vec![rule])
            .remove(0)
    };
    let short = message("greater_than_equal", "must be at least 60");
    assert_eq!(short.msg, "A sandbox lives for at least 1 minute.");
    let long = message("value_error", "must be at most 3600 seconds");
    assert_eq!(long.msg, "must be at most 3600 seconds", "another rule");
}

#[test]
fn errors_of_the_server_find_their_field() {
    let at = |path: &[&'static str]| {
        let path = path.iter().map(|part| Loc::from(*part));
        Field::of(&FieldError::body("x", path, "x"))
    };
    assert_eq!(at(&["image", "uri"]), Field::Image);
    assert_eq!(at(&["resourceLimits", "memory"]), Field::Memory);
    assert_eq!(at(&["resourceLimits", "cpu"]), Field::Cpu);
    assert_eq!(at(&["metadata", "a.b"]), Field::Metadata);
    assert_eq!(at(&["metadata", "name"]), Field::Name);
    assert_eq!(at(&["networkPolicy", "egress"]), Field::Network);
    assert_eq!(at(&[]), Field::Form);
}

#[test]
fn a_network_policy_is_a_member_and_its_problems_have_their_line() {
    let form = |network: &str, list: &str| CreateForm {
        image: "debian:12".to_owned(),
        network: network.to_owned(),
        network_rules: list.to_owned(),
        ..CreateForm::default()
    };
    assert_eq!(
        form("usual", "a b").request().body.get("networkPolicy"),
        None
    );
    let request = form("only", "a.example").request();
    assert_eq!(request.problems, []);
    let rule = json!({ "action": "allow", "target": "a.example" });
    let policy = json!({ "defaultAction": "deny", "egress": [rule] });
    assert_eq!(request.body["networkPolicy"], policy);
    let wrong = form("except", "a.example\nb.example:443");
    let problems = wrong.local_problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(Field::of(&problems[0]), Field::Network);
    assert!(problems[0].msg.starts_with("Line 2: "), "{problems:?}");
    let twice = CreateForm {
        more: r#"{"networkPolicy": {}}"#.to_owned(),
        ..form("only", "a.example")
    };
    let fields: Vec<_> = twice.request().problems.iter().map(Field::of).collect();
    assert_eq!(fields, [Field::More]);
    // The server's rules are shown where the policy is.
    for (more, field) in [
        ("", Field::Network),
        (r#"{"networkPolicy": 1}"#, Field::More),
    ] {
        let form = CreateForm {
            more: more.to_owned(),
            ..form("usual", "")
        };
        let rule = FieldError::body("value_error", ["networkPolicy"], "is missing");
        let problems = form.problems(Vec::new(), vec![rule]);
        assert_eq!(Field::of(&problems[0]), field, "{more}");
        assert_eq!(problems[0].msg, "networkPolicy: is missing");
    }
}

#[test]
fn advanced_fields_are_members_of_the_request_and_report_at_their_place() {
    let form = CreateForm {
        image: "debian:12".to_owned(),
        auth_user: " zoe ".to_owned(),
        auth_password: " p ".to_owned(),
        extensions: "a.b=c".to_owned(),
        secure_access: true,
        pre_start: "sh -c 'x y'".to_owned(),
        more: r#"{"platform": {"os": "linux", "arch": "amd64"}}"#.to_owned(),
        ..CreateForm::default()
    };
    let Request { body, problems } = form.request();
    assert_eq!(problems, []);
    let auth = json!({ "username": "zoe", "password": " p " });
    assert_eq!(body["image"], json!({ "uri": "debian:12", "auth": auth }));
    assert_eq!(body["extensions"], json!({ "a.b": "c" }));
    assert_eq!(body["secureAccess"], json!(true));
    assert_eq!(
        body["lifecycle"]["preStart"]["command"],
        json!(["sh", "-c", "x y"])
    );
    assert_eq!(body["platform"]["os"], json!("linux"));
    let wrong = CreateForm {
        extensions: "a".to_owned(),
        pre_start: "'".to_owned(),
        more: "[]".to_owned(),
        ..form
    };
    let fields: Vec<_> = wrong.request().problems.iter().map(Field::of).collect();
    assert_eq!(fields, [Field::Extensions, Field::PreStart, Field::More]);
    for (place, field) in [
        (vec!["image", "auth", "password"], Field::AuthPassword),
        (vec!["image", "auth", "username"], Field::AuthUser),
        (vec!["image", "uri"], Field::Image),
        (vec!["lifecycle", "periodic"], Field::More),
        (vec!["lifecycle", "preStart", "command"], Field::PreStart),
        (vec!["volumes"], Field::More),
        (vec!["secureAccess"], Field::SecureAccess),
        (vec!["unheard"], Field::Form),
    ] {
        let problem = FieldError::body("x", place.clone(), "y");
        assert_eq!(Field::of(&problem), field, "{place:?}");
    }
}

#[test]
fn the_chosen_source_decides_which_field_counts() {
    let mut form = CreateForm {
        source: source::SNAPSHOT.to_owned(),
        snapshot: " s-1 ".to_owned(),
        image: "debian:12".to_owned(),
        auth_user: "zoe".to_owned(),
        ..CreateForm::default()
    };
    let Request { body, problems } = form.request();
    assert_eq!(problems, []);
    assert_eq!(body["snapshotId"], json!("s-1"));
    assert_eq!(body.get("image"), None);
    form.source = source::IMAGE.to_owned();
    let Request { body, problems } = form.request();
    assert_eq!(problems, []);
    assert_eq!(body["image"]["uri"], json!("debian:12"));
    assert_eq!(body.get("snapshotId"), None);
}

#[test]
fn a_missing_snapshot_is_reported_at_its_field_and_needs_no_command() {
    let form = CreateForm {
        source: source::SNAPSHOT.to_owned(),
        entrypoint: String::new(),
        ..CreateForm::default()
    };
    let rule = FieldError::body(
        "missing",
        ["image"],
        "one of image.uri and snapshotId is required",
    );
    let problems = form.problems(form.request().problems, vec![rule]);
    let seen: Vec<_> = problems
        .iter()
        .map(|it| (Field::of(it), &*it.msg))
        .collect();
    assert_eq!(
        seen,
        [(Field::Snapshot, "Choose a snapshot that is ready.")]
    );
    let chosen = CreateForm {
        snapshot: "s-1".to_owned(),
        ..form
    };
    let rule = FieldError::body("value_error", ["snapshotId"], "is not available");
    let problems = chosen.problems(Vec::new(), vec![rule]);
    assert_eq!(Field::of(&problems[0]), Field::Snapshot);
    assert_eq!(problems[0].msg, "is not available");
}

#[test]
fn the_address_of_the_page_names_what_it_is_created_from() {
    let mut form = CreateForm::default();
    form.begin_from(source::Start::Template("t".to_owned()));
    assert!(form.is_of_template() && form.template == "t");
    form.begin_from(source::Start::Snapshot("s".to_owned()));
    assert!(form.is_of_snapshot() && form.snapshot == "s");
}
