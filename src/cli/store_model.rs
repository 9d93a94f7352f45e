//! The latency model of the embedded server, for the commands that have one.

use std::fs;

use clap::Args;

use super::failure::Failure;
use crate::report;
use s3mq_server::Model;

/// The latency model of the embedded server.
#[derive(Clone, Debug, Args)]
pub(super) struct ModelArgs {
    /// Let the embedded store take the times of another, drawn from published figures: s3-standard, s3-express,
    /// minio-lan, or a TOML file of your own. Results say that they are modelled (docs/store-models.md)
    #[arg(long, value_name = "MODEL|FILE")]
    store_model: Option<String>,
}

impl ModelArgs {
    /// The model; `None` where none is asked for.
    pub(super) fn model(&self) -> Result<Option<Model>, Failure> {
        let Some(name) = &self.store_model else {
            return Ok(None);
        };
        let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("--store-model {name}: {error}"));
        if let Some(model) = Model::built_in(name).map_err(|error| wrong(&error))? {
            return Ok(Some(model));
        }
        let text = fs::read_to_string(name).map_err(|error| {
            let known: Vec<_> = Model::built_in_names().collect();
            wrong(&format!("{error}; the built-in models are {}", known.join(", ")))
        })?;
        Ok(Some(Model::parse(&text).map_err(|error| wrong(&error))?))
    }
}

/// A model as a result has it.
pub(super) fn described(model: &Model) -> report::StoreModel {
    report::StoreModel {
        name: model.name().to_owned(),
        seed: model.seed(),
        operations: model.operations().clone(),
    }
}
