variable "project" {
  description = "The project's id."
  type        = string
}

variable "region" {
  description = "Region of all resources."
  type        = string
}

variable "image" {
  description = "The `wakeq` image."
  type        = string
}

variable "handler_timeout_s" {
  description = "Timeout of the longest handler; the service refuses more than 600 s."
  type        = number
  default     = 300
}

variable "operators" {
  description = "Members that operate the queue over HTTP: `user:…` and `group:…`."
  type        = set(string)
  default     = []
}

variable "publishers" {
  description = "Addresses of other service accounts that emit with the library, under keys of your choice."
  type        = map(string)
  default     = {}
}

variable "trusted_proxies" {
  description = "Address ranges of the proxies in front of the service whose X-Forwarded-For is trusted: Cloud Run's, and those of a load balancer if there is one."
  type        = list(string)
  default     = ["169.254.0.0/16"]
}

variable "broadcast" {
  description = "Whether every emitted event is also broadcast to listeners."
  type        = bool
  default     = false
}

variable "deletion_protection" {
  description = "Whether Terraform refuses to delete the service. Apply false before you destroy or remove it."
  type        = bool
  default     = true
}

variable "database_deletion_protection" {
  description = "Whether Terraform and Google refuse to delete the database. Apply false before you destroy it."
  type        = bool
  default     = true
}
