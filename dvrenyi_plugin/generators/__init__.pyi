from .dataset_generators import (
    BoundedArrays as BoundedArrays,
    CanaryDatasetGenerator as CanaryDatasetGenerator,
    ConstantDatasetGenerator as ConstantDatasetGenerator,
    EvolutionarySearchDatasetGenerator as EvolutionarySearchDatasetGenerator,
    EvolutionConfig as EvolutionConfig,
    RandomSearchDatasetGenerator as RandomSearchDatasetGenerator,
    RemoveOneDatasetGenerator as RemoveOneDatasetGenerator,
    ReplaceOneDatasetGenerator as ReplaceOneDatasetGenerator,
)
