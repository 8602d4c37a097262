//! Schemas that every client reads: derived from the types, then made plain.
//!
//! Many clients pass schemas on to model APIs that know only a part of JSON Schema. So there is no `anyOf`, `oneOf`,
//! `allOf`, `$ref` and no list of types: what is optional is not required, and never null.

use std::sync::Arc;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Of what a tool takes.
pub(crate) fn input<T: JsonSchema>() -> Arc<JsonObject> {
    plain_schema::<T>(SchemaSettings::draft2020_12())
}

/// Of what a tool answers.
pub(crate) fn output<T: JsonSchema>() -> Arc<JsonObject> {
    plain_schema::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn plain_schema<T: JsonSchema>(settings: SchemaSettings) -> Arc<JsonObject> {
    let settings = settings.with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    make_plain(&mut schema);
    match schema {
        Value::Object(mut object) => {
            // The type's own name and words are for this code, not for clients.
            object.remove("description");
            object.entry("properties").or_insert_with(|| Value::Object(JsonObject::new()));
            Arc::new(object)
        }
        _ => Arc::default(),
    }
}

fn make_plain(value: &mut Value) {
    match value {
        Value::Object(object) => {
            // A property may be called `title`; the keyword's value is a text.
            object.retain(|key, value| !matches!(key.as_str(), "$schema" | "title" | "format") || value.is_object());
            if let Some(Value::Array(types)) = object.get("type") {
                let kept = types.iter().find(|t| *t != "null").cloned().unwrap_or_else(|| "string".into());
                object.insert("type".into(), kept);
            }
            if let Some(Value::Array(values)) = object.get_mut("enum") {
                values.retain(|v| !v.is_null());
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            // An optional object: itself, or null.
            if let Some(Value::Array(choices)) = object.remove("anyOf") {
                let own = choices.into_iter().find(|choice| choice.get("type").is_none_or(|t| t != "null"));
                if let Some(Value::Object(own)) = own {
                    for (key, value) in own {
                        object.entry(key).or_insert(value);
                    }
                }
            }
            object.values_mut().for_each(make_plain);
        }
        Value::Array(items) => items.iter_mut().for_each(make_plain),
        _ => {}
    }
}
