//! The amount of a resource that a container is told by `resourceFieldRef`.

use crate::Quantity;

/// A field of a `resourceFieldRef` that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
#[non_exhaustive]
pub struct ResourceFieldError {
    /// `resource`, also for an amount that it refers to, or `divisor`.
    pub field: &'static str,
    /// What is wrong.
    pub why: String,
}

impl ResourceFieldError {
    /// An error in this field.
    #[must_use]
    pub fn new(field: &'static str, why: String) -> Self {
        Self { field, why }
    }
}

/// The value of `resource`, such as `limits.cpu`, in units of `divisor`, rounded up as Kubernetes does.
///
/// `given` is what the container and then its pod say of a resource, by whether the limit is asked for and by its name:
/// the first that is not zero counts. Without one, the limit is what the node has for pods, `of_node`.
///
/// # Errors
/// The resource is neither a limit nor a request, or an amount or the divisor is no quantity. Or `of_node` fails.
pub fn resource_field<'a, E: From<ResourceFieldError>>(
    resource: &str,
    divisor: Option<&str>,
    given: impl FnOnce(bool, &str) -> [Option<&'a str>; 2],
    of_node: impl FnOnce(&str) -> Result<i64, E>,
) -> Result<String, E> {
    let wrong = ResourceFieldError::new;
    let (is_limit, name) = match resource.split_once('.') {
        Some(("limits", name)) => (true, name),
        Some(("requests", name)) => (false, name),
        _ => return Err(wrong("resource", format!("{resource} is not known")).into()),
    };
    let in_units: fn(Quantity) -> i64 =
        if name == "cpu" { Quantity::milli_value } else { Quantity::value };
    let parse = |field, text: &str| {
        let parsed = text.parse::<Quantity>().map(in_units);
        parsed.map_err(|error| wrong(field, format!("{text}: {error}")))
    };
    let mut amount = 0;
    for text in given(is_limit, name).into_iter().flatten() {
        amount = parse("resource", text)?;
        if amount != 0 {
            break;
        }
    }
    if is_limit && amount == 0 && matches!(name, "cpu" | "memory" | "ephemeral-storage") {
        amount = of_node(name)?;
    }
    let divisor = divisor.filter(|text| !matches!(*text, "" | "0"));
    let unit = parse("divisor", divisor.unwrap_or("1"))?.max(1);
    Ok((amount / unit + i64::from(amount % unit > 0)).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_amount_that_is_not_zero_counts_and_a_limit_may_be_the_nodes() {
        let value = |resource: &str, divisor: &str, given: [&'static str; 2]| {
            let given = given.map(|text| Some(text).filter(|text| !text.is_empty()));
            let of_node = |_: &str| Ok::<_, ResourceFieldError>(4000);
            resource_field(resource, Some(divisor), |_, _| given, of_node)
                .map_err(|error| error.to_string())
        };
        for (resource, divisor, given, expected) in [
            ("limits.cpu", "", ["1500m", "3"], "2"),
            ("limits.cpu", "0", ["0", "3"], "3"),
            ("limits.cpu", "1m", ["", ""], "4000"),
            ("requests.cpu", "1m", ["", ""], "0"),
            ("requests.memory", "1Mi", ["105M", ""], "101"),
            ("limits.memory", "1Ki", ["0", "0"], "4"),
            ("limits.hugepages-2Mi", "1", ["", ""], "0"),
        ] {
            let expected = Ok(expected.to_owned());
            assert_eq!(value(resource, divisor, given), expected, "{resource} {divisor} {given:?}");
        }
        for (resource, divisor, given, expected) in [
            ("cpu", "", ["", ""], "resource: cpu is not known"),
            ("limits.cpu", "", ["x", ""], "resource: x: "),
            ("limits.cpu", "x", ["1", ""], "divisor: x: "),
        ] {
            let error = value(resource, divisor, given).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
