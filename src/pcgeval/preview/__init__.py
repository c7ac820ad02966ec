"""One level scored and drawn for people and environments. No stage but the report imports it."""
