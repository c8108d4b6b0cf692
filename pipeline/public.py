"""What `import pipeline` offers, from where it is made. Loaded when the first of it is used."""

from pipeline.consuming import Effects as Effects
from pipeline.consuming import consume as consume
from pipeline.manifest import lake as lake
from pipeline.sharing import shared as shared
