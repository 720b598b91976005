"""What the API says of itself: one OpenAPI 3.1 document, made by drf-spectacular from viewsets and
serializers, and for /v1 from the structs of its door."""
