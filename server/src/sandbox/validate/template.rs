//! The rules of a request to make a template (contract: lifecycle §A3).

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use osb_protocol::{
    FieldError,
    error::Loc,
    execd::HOOKS_ENV,
    labels,
    lifecycle::{CreateTemplateRequest, TemplateBuild, TemplateBuildRequest, TemplateSpec},
};
use osb_runtime::{Context, Recipe, Templates};
use serde_json::{Map, Value};

use super::{
    REPORTED, network_policy, normalise,
    rules::{self, Broken},
    schema,
};
use crate::sandbox::{Builds, Error, TemplateLimits};

/// Longest Dockerfile, in bytes.
const DOCKERFILE_MAX: usize = 64 << 10;
/// Limits that a template may have. The last one has no effect on container engines.
const LIMITS: [&str; 3] = ["cpu", "memory", "disk"];

/// What the rules depend on.
#[derive(Clone, Copy)]
pub struct TemplateRules<'a> {
    /// What templates may be made from.
    pub limits: &'a TemplateLimits,
    /// Whether the client may have images built.
    pub builds: Builds,
    /// Which images it is made from.
    pub runtime: &'a dyn Templates,
}

/// A request that follows every rule.
#[derive(Debug)]
pub struct NewTemplate {
    /// As it is shown and kept.
    pub spec: TemplateSpec,
    /// Labels.
    pub metadata: BTreeMap<String, String>,
    /// What its image is made from.
    pub recipe: Recipe,
}

/// Checks a request to make a template.
///
/// # Errors
/// [`Error::Invalid`] when a member is unknown, or has the wrong type, range or combination, else
/// [`Error::Broken`]; each with everything that is wrong.
pub fn template(body: Value, rules: &TemplateRules<'_>) -> Result<NewTemplate, Error> {
    let spellings = [spelling(Some(&body)), spelling(body.get("build"))];
    let body = normalise::create(body);
    let wrong = schema::check_template(&body).flat_map(|error| as_spelled(error, &spellings));
    let mut wrong: Vec<FieldError> = wrong.take(REPORTED).collect();
    if let Value::Object(members) = &body {
        combinations(members, &mut wrong);
    }
    if !wrong.is_empty() {
        wrong.truncate(REPORTED);
        return Err(Error::Invalid(wrong));
    }
    let request: CreateTemplateRequest = serde_json::from_value(body).map_err(|_| {
        // The schema is stricter than the types. The parser's own words would repeat the value.
        Error::Invalid(vec![FieldError::body(
            "value_error",
            [""; 0],
            "is not valid",
        )])
    })?;
    checked(request, rules)
}

/// The names that a client gave the members of an object, by their names in the schema.
type Spelling = BTreeMap<String, Vec<String>>;

fn spelling(object: Option<&Value>) -> Spelling {
    let mut spelling = Spelling::new();
    for (given, value) in object.and_then(Value::as_object).into_iter().flatten() {
        // As if it was absent.
        if !value.is_null() {
            let name = normalise::camel_case(given);
            spelling.entry(name).or_default().push(given.clone());
        }
    }
    spelling
}

/// An error about an unknown member with the name that the client gave it: one error for each, if several
/// names are the same in the schema.
fn as_spelled(error: FieldError, [body, build]: &[Spelling; 2]) -> Vec<FieldError> {
    let given = match error.loc.as_slice() {
        _ if error.kind != schema::UNKNOWN => None,
        [_, Loc::Name(name)] => body.get(name),
        [_, Loc::Name(_), Loc::Name(name)] => build.get(name),
        _ => None,
    };
    let Some(given) = given else {
        return vec![error];
    };
    let each = given.iter().map(|name| {
        let mut error = error.clone();
        error.loc.pop();
        error.loc.push(Loc::Name(name.clone()));
        error
    });
    each.collect()
}

/// Rules over several members.
fn combinations(members: &Map<String, Value>, wrong: &mut Vec<FieldError>) {
    let build = members.get("build");
    match (members.contains_key("image"), build.is_some()) {
        (true, false) | (false, true) => {}
        (true, true) => {
            let rule = "must not be given together with image";
            wrong.push(FieldError::body("value_error", ["build"], rule));
        }
        (false, false) => {
            let rule = "one of image and build is required";
            wrong.push(FieldError::body("missing", ["image"], rule));
        }
    }
    if let Some(Value::Object(build)) = build
        && build.contains_key("dockerfile") == build.contains_key("context")
    {
        let rule = "must have exactly one of dockerfile and context";
        wrong.push(FieldError::body("value_error", ["build"], rule));
    }
}

fn checked(
    request: CreateTemplateRequest,
    rules: &TemplateRules<'_>,
) -> Result<NewTemplate, Error> {
    let mut broken = Broken::default();
    let (image, build, recipe) = match (request.image, request.build) {
        (_, Some(build)) => {
            let (shown, context) = broken.note(context(build, rules)).unzip();
            (None, shown, context.map(Recipe::Build))
        }
        (image, None) => {
            let image = image.unwrap_or_default();
            let image = broken.note(source(&image, rules));
            (image.clone(), None, image.map(Recipe::Image))
        }
    };
    if let Some(words) = &request.entrypoint {
        let words = rules::entrypoint(Some(words.clone()));
        broken.note(words.map_err(|error| match error {
            // Only a create has a code of its own for this.
            Error::Entrypoint(rule) => Error::rule("entrypoint", rule),
            other => other,
        }));
    }
    let resources = request.resource_limits.clone().unwrap_or_default();
    let unknown = resources
        .keys()
        .filter(|key| !LIMITS.contains(&key.as_str()));
    broken.add(unknown.map(|key| Error::Entry {
        map: "resourceLimits",
        key: key.clone(),
        rule: "must be one of cpu, memory and disk".to_owned(),
    }));
    rules::limits(&resources, &mut broken);
    let env = request.env.clone().unwrap_or_default();
    broken.add(env.keys().filter_map(|name| variable(name)));
    let values = env.into_iter().map(|(name, value)| (name, Some(value)));
    rules::environment(&values.collect(), &mut broken);
    let metadata = request.metadata.unwrap_or_default();
    broken.add(labels::check_all(&metadata).into_iter().map(Error::from));
    broken.note(rules::total_size("metadata", &metadata, None));
    match recipe {
        Some(recipe) if broken.0.is_empty() => Ok(NewTemplate {
            spec: TemplateSpec {
                image,
                build,
                resource_limits: request.resource_limits,
                entrypoint: request.entrypoint,
                env: request.env,
                readiness: request.readiness,
                publish: request.publish.trim().to_owned(),
                format: request.format,
            },
            metadata,
            recipe,
        }),
        _ => Err(Error::Broken(broken.0)),
    }
}

/// The reference of the image that a template keeps.
fn source(image: &str, rules: &TemplateRules<'_>) -> Result<String, Error> {
    let image = rules::reference("image", image)?;
    match rules.runtime.refusal(&image) {
        Some(rule) => Err(Error::rule("image", rule)),
        None => Ok(image),
    }
}

/// Why a variable must not be set.
fn variable(name: &str) -> Option<Error> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_right = !name.starts_with(|first: char| first.is_ascii_digit());
    let rule = if name.is_empty() || !starts_right || !name.bytes().all(is_name) {
        "names must have letters, digits and '_' only, and not begin with a digit"
    } else if name == HOOKS_ENV || network_policy::is_of_sidecar(name) {
        "is reserved"
    } else {
        return None;
    };
    Some(Error::Entry {
        map: "env",
        key: name.to_owned(),
        rule: rule.to_owned(),
    })
}

/// What an image is built from, and what is shown of it.
fn context(
    build: TemplateBuildRequest,
    rules: &TemplateRules<'_>,
) -> Result<(TemplateBuild, Context), Error> {
    let refusal = match rules.builds {
        Builds::Allowed => None,
        Builds::Off => Some("builds are not allowed on this server ([templates] allow_builds)"),
        Builds::OffForTenants => Some(
            "keys and users of a tenant may not build on this server ([templates] allow_tenant_builds)",
        ),
    };
    if let Some(rule) = refusal {
        return Err(Error::rule("build", rule));
    }
    if let Some(text) = build.dockerfile {
        if text.len() > DOCKERFILE_MAX {
            let rule = format!("must have at most {DOCKERFILE_MAX} bytes");
            return Err(Error::rule("build.dockerfile", rule));
        }
        let shown = TemplateBuild {
            dockerfile: Some(text.clone()),
            context_bytes: None,
        };
        return Ok((shown, Context::Dockerfile(text)));
    }
    let text = build.context.unwrap_or_default();
    let archive = BASE64_STANDARD.decode(text.as_bytes());
    let archive = archive.map_err(|_| Error::rule("build.context", "must be base64"))?;
    let most = rules.limits.max_context_bytes;
    if archive.len() > most {
        let rule = format!("must have at most {most} bytes");
        return Err(Error::rule("build.context", rule));
    }
    let shown = TemplateBuild {
        dockerfile: None,
        context_bytes: u64::try_from(archive.len()).ok(),
    };
    Ok((shown, Context::Archive(archive.into())))
}

#[cfg(test)]
mod tests {
    use osb_runtime::sim::SimRuntime;
    use serde_json::json;

    use super::*;

    /// Checks a request of a client that may, or may not, build.
    fn checked_for(builds: Builds, body: Value) -> Result<NewTemplate, Error> {
        let limits = TemplateLimits {
            max_context_bytes: 8,
            ..TemplateLimits::default()
        };
        let rules = TemplateRules {
            limits: &limits,
            builds,
            runtime: &SimRuntime::default(),
        };
        super::template(body, &rules)
    }

    fn template(body: Value) -> Result<NewTemplate, Error> {
        checked_for(Builds::Allowed, body)
    }

    #[test]
    fn a_template_is_read_whole() {
        let body = json!({
            "image": " python:3.12 ", "publish": " s3://b/p ", "resource_limits": {"cpu": "2", "disk": "4Gi"},
            "entrypoint": ["sleep", "1"], "env": {"A": "1"}, "metadata": {"team": "core"},
            "readiness": {"probe": "tcp://127.0.0.1:44772", "warmup_seconds": "3", "more": 1},
            "format": "native", "build": null,
        });
        let new = template(body).unwrap();
        assert_eq!(new.recipe, Recipe::Image("python:3.12".to_owned()));
        assert_eq!(new.spec.publish, "s3://b/p");
        assert_eq!(new.metadata["team"], "core");
        let readiness = new.spec.readiness.unwrap();
        assert_eq!(readiness.warmup_seconds, Some(3));
        assert_eq!(new.spec.resource_limits.unwrap()["disk"], "4Gi");
    }

    #[test]
    fn a_build_is_a_dockerfile_or_a_context() {
        let with = |build: Value| json!({"build": build, "publish": "p"});
        let new = template(with(json!({"dockerfile": "FROM a"}))).unwrap();
        let context = Context::Dockerfile("FROM a".to_owned());
        assert_eq!(new.recipe, Recipe::Build(context));
        let build = new.spec.build.unwrap();
        assert_eq!(build.dockerfile.as_deref(), Some("FROM a"));
        let new = template(with(json!({"context": "AAEC"}))).unwrap();
        let context = Context::Archive(vec![0, 1, 2].into());
        assert_eq!(new.recipe, Recipe::Build(context));
        assert_eq!(new.spec.build.unwrap().context_bytes, Some(3));
        for (build, text) in [
            (json!({"context": "?"}), "build.context: must be base64"),
            (
                json!({"context": "AAECAAECAAEC"}),
                "build.context: must have at most 8 bytes",
            ),
            (
                json!({"dockerfile": "#".repeat(65_537)}),
                "build.dockerfile: must have at most 65536 bytes",
            ),
        ] {
            let error = template(with(build)).unwrap_err();
            assert!(matches!(error, Error::Broken(_)), "{error:?}");
            assert_eq!(error.to_string(), text);
        }
        for (builds, setting) in [
            (Builds::Off, "allow_builds"),
            (Builds::OffForTenants, "allow_tenant_builds"),
        ] {
            let build = with(json!({"dockerfile": "FROM a"}));
            let error = checked_for(builds, build).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with("build: ") && text.contains(setting),
                "{text}"
            );
            checked_for(builds, json!({"image": "a", "publish": "p"})).unwrap();
        }
    }

    #[test]
    fn a_forbidden_image_and_a_bad_entry_point_break_a_rule() {
        for (body, text) in [
            (
                json!({"image": "sim-templates:tpl-1", "publish": "p"}),
                "image: it names a template",
            ),
            (
                json!({"image": "a", "publish": "p", "entrypoint": [" "]}),
                "entrypoint: must begin with a command",
            ),
        ] {
            let error = template(body).unwrap_err();
            assert_eq!(error.to_string(), text);
            let Error::Broken(broken) = error else {
                panic!("not broken rules");
            };
            assert!(
                matches!(broken.as_slice(), [Error::Rule { .. }]),
                "{broken:?}"
            );
        }
    }

    #[test]
    fn wrong_members_are_named() {
        for (body, place, kind) in [
            (json!({"publish": "p"}), "image", "missing"),
            (json!({"image": "a"}), "publish", "missing"),
            (json!({"image": 5, "publish": "p"}), "image", "string_type"),
            (
                json!({"image": "a", "publish": "p", "more": 1}),
                "more",
                "extra_forbidden",
            ),
            (
                json!({"image": "a", "publish": "p", "entrypoint": []}),
                "entrypoint",
                "too_short",
            ),
            (
                json!({"image": "a", "publish": "p", "format": "zip"}),
                "format",
                "literal_error",
            ),
            (
                json!({"image": "a", "publish": "p", "readiness": {"warmupSeconds": -1}}),
                "readiness.warmupSeconds",
                "greater_than_equal",
            ),
            (
                json!({"image": "a", "publish": "p", "build": {"dockerfile": "FROM a"}}),
                "build",
                "value_error",
            ),
            (json!({"publish": "p", "build": {}}), "build", "value_error"),
            (
                json!({"publish": "p", "build": {"dockerfile": "a", "context": "b"}}),
                "build",
                "value_error",
            ),
            (json!([]), "", "dict_type"),
        ] {
            let Err(Error::Invalid(fields)) = template(body.clone()) else {
                panic!("{body} was accepted");
            };
            let seen: Vec<_> = fields
                .iter()
                .map(|field| (field.field(), field.kind.as_str()))
                .collect();
            assert_eq!(seen, [(place.to_owned(), kind)], "{body}");
        }
    }

    #[test]
    fn each_unknown_member_is_named_as_the_client_spelled_it() {
        let body = json!({
            "image": "a", "publish": "p", "resource_limits": {}, "absent_one": null, "more": 1,
            "my_member": 1, "myMember": 2, "a.b": 1,
        });
        let named = |body: Value| {
            let Err(Error::Invalid(fields)) = template(body) else {
                panic!("it was accepted");
            };
            assert!(fields.iter().all(|field| field.kind == "extra_forbidden"));
            let mut names: Vec<_> = fields.iter().map(FieldError::field).collect();
            names.sort();
            names
        };
        assert_eq!(named(body), ["a.b", "more", "myMember", "my_member"]);
        let body = json!({
            "publish": "p", "more": 1,
            "build": {"dockerfile": "FROM a", "build_args": {}, "target": "b"},
        });
        assert_eq!(named(body), ["build.build_args", "build.target", "more"]);
        let mut many = json!({"image": "a", "publish": "p"});
        for n in 0..1000 {
            many[format!("m_{n}")] = json!(1);
        }
        assert_eq!(named(many).len(), REPORTED);
    }

    #[test]
    fn rules_about_templates_are_reported_at_once() {
        let body = json!({
            "image": "a b", "publish": "p", "resourceLimits": {"gpu": "1", "memory": "x"},
            "env": {"1A": "", "A-B": "", "OPENSANDBOX_LIFECYCLE": "{}"}, "metadata": {"a b": "1"},
            "entrypoint": [" "],
        });
        let error = template(body).unwrap_err();
        let places: Vec<_> = error.fields().iter().map(FieldError::field).collect();
        for place in [
            "image",
            "resourceLimits.gpu",
            "resourceLimits.memory",
            "env.1A",
            "env.A-B",
            "env.OPENSANDBOX_LIFECYCLE",
            "metadata.a b",
            "entrypoint",
        ] {
            assert!(
                places.iter().any(|seen| seen == place),
                "{place}: {places:?}"
            );
        }
    }
}
