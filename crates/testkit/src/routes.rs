//! The routes of a server, read from its router.

use axum::Router;
use reqwest::Method;

/// One method of one route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountedRoute {
    /// The route's pattern, such as `/v1/sandboxes/{id}`.
    pub path: String,
    /// Name of the method.
    pub method: String,
}

impl MountedRoute {
    /// The method.
    ///
    /// # Panics
    /// Never for routes that [`mounted_routes`] found.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method.parse().expect("the name of a method")
    }
}

/// Methods that a route for any method is listed with.
const ANY: &str = "GET,POST,PUT,PATCH,DELETE";

/// Lists what a router serves, without `HEAD`. The library has no such list, but its debug output
/// does: each route by its number with the `Allow` header that it would send, then the path of each
/// number.
///
/// # Panics
/// When the debug output has another form than this reads.
#[must_use]
pub fn mounted_routes(router: &Router) -> Vec<MountedRoute> {
    let text = format!("{router:?}");
    let start = text.find("PathRouter { routes: {").expect("the routes");
    let (routes, rest) = text[start..]
        .split_once(", node: Node { paths: {")
        .expect("the paths after the routes");
    let (paths, _) = rest
        .split_once(", fallback_router: ")
        .expect("the end of the paths");
    let mut mounted = Vec::new();
    for entry in paths.split("RouteId(").skip(1) {
        let Some((number, path)) = entry.split_once("): \"") else {
            continue;
        };
        let (path, _) = path.split_once('"').expect("a quoted path");
        let route = routes
            .split(&format!("RouteId({number}): "))
            .nth(1)
            .expect("the route of a path");
        let route = route.split("RouteId(").next().unwrap_or(route);
        let methods = match route.split_once("allow_header: Bytes(b\"") {
            Some((_, allowed)) => allowed.split('"').next().expect("a quoted header"),
            None => ANY,
        };
        mounted.extend(
            methods
                .split(',')
                .filter(|method| *method != "HEAD")
                .map(|method| MountedRoute {
                    path: path.to_owned(),
                    method: method.to_owned(),
                }),
        );
    }
    mounted.sort();
    assert!(!mounted.is_empty(), "no route in {text}");
    mounted
}

#[cfg(test)]
mod tests {
    use axum::{
        middleware::from_fn,
        routing::{any, get},
    };

    use super::*;

    #[test]
    fn every_route_is_listed_with_its_methods() {
        let inner = Router::new().route("/b/{id}", get(|| async {}).delete(|| async {}));
        let router: Router = Router::new()
            .route("/a", get(|| async {}))
            .nest("/v1", inner.clone())
            .merge(inner)
            .layer(from_fn(|request, next: axum::middleware::Next| {
                next.run(request)
            }))
            .route("/any/{*rest}", any(|| async {}));
        let listed: Vec<_> = mounted_routes(&router)
            .into_iter()
            .map(|route| format!("{} {}", route.method, route.path))
            .collect();
        let any =
            ["DELETE", "GET", "PATCH", "POST", "PUT"].map(|it| format!("{it} /any/{{*rest}}"));
        let others = [
            "DELETE /b/{id}",
            "GET /b/{id}",
            "DELETE /v1/b/{id}",
            "GET /v1/b/{id}",
        ];
        let wanted = ["GET /a".to_owned()].into_iter().chain(any);
        let wanted: Vec<_> = wanted.chain(others.map(str::to_owned)).collect();
        assert_eq!(listed, wanted);
    }
}
