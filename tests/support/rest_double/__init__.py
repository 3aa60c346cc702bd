"""An Iceberg REST catalog in this process, over real files: correct, or with the temperament of a real server."""

from tests.support.rest_double.routes import Kind
from tests.support.rest_double.server import RestDouble
from tests.support.rest_double.temperament import CORRECT, TEMPERAMENTS, Temperament

__all__ = ["CORRECT", "TEMPERAMENTS", "Kind", "RestDouble", "Temperament"]
